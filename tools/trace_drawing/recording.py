"""Records the run that a command line asks for."""

import argparse

from command_line.bars import bar_of
from command_line.flags import given
from command_line.pairs import plan_pair
from rich.console import Console

import sbjax


def record(options: argparse.Namespace) -> sbjax.Trace:
    """Loads the models, generates, and notes what happens; shows how far it is.

    Raises:
      ValueError: the request is wrong in some way that the message names.
      OSError: a file cannot be read.
    """
    console = Console(stderr=True)
    plan = plan_pair(options)
    with console.status("loading the models"):
        pair = plan.load()
    settings = {**pair.sampling, **given(temperature=options.temperature)}
    with bar_of("tokens", options.max_new_tokens * len(options.prompt), console) as bar:
        recorder = sbjax.Recorder(bar)
        result = sbjax.generate(
            pair.target,
            list(options.prompt),
            draft=pair.draft,
            method=pair.method,
            predictor=pair.predictor,
            rule=options.rule,
            max_new_tokens=options.max_new_tokens,
            seed=options.seed,
            recorder=recorder,
            **settings,
        )
    reasons = [generation.finish_reason for generation in result.generations]
    return recorder.trace(pair.target.tokenizer, reasons)
