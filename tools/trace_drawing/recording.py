"""Records the run that a command line asks for."""

import argparse

from command_line.flags import given
from command_line.pairs import plan_pair
from rich import progress
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
    columns = (progress.TextColumn("tokens"), progress.BarColumn(), progress.MofNCompleteColumn())
    times = (progress.TimeElapsedColumn(), progress.TimeRemainingColumn())
    settings = {**pair.sampling, **given(temperature=options.temperature)}
    with progress.Progress(*columns, *times, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=options.max_new_tokens * len(options.prompt))
        recorder = sbjax.Recorder(lambda emitted: bar.update(task, completed=emitted))
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
