"""The job of ``tools/generate.py``: prompts through ``sbjax.generate``, batch by batch."""

import argparse
import contextlib
import dataclasses
from typing import Any

from rich.console import Console

import sbjax
from command_line.bars import bar_of
from command_line.flags import given
from command_line.output import Output
from command_line.pairs import Pair, plan_pair
from command_line.prompt_files import as_chat, read_prompts
from command_line.tables import add_counts, statistics_table
from sbjax.generation_config import resolve
from sbjax.prompts import token_lists


@dataclasses.dataclass(frozen=True)
class Request:
    """Everything ``sbjax.generate`` is called with, checked before the first token is made.

    Attributes:
      pair: the models and the method.
      prompts: as they were given.
      ids: their token ids.
      settings: sampling and stop settings.
      options: the command line.
    """

    pair: Pair
    prompts: list[Any]
    ids: list[list[int]]
    settings: dict[str, Any]
    options: argparse.Namespace

    def label(self, row: int) -> str:
        """Names a continuation by the numbers of its prompt and sample."""
        prompt, sample = divmod(row, self.options.samples)
        return f"prompt {prompt}" + (f", sample {sample}" if self.options.samples > 1 else "")


def run(options: argparse.Namespace) -> int:
    """Does what the command line says; returns the exit code.

    Raises:
      ValueError: the request is wrong in some way that the message names.
      OSError: a file cannot be read or written.
    """
    console = Console(stderr=True, quiet=options.quiet)
    prompts = _prompts(options)
    rows = len(prompts) * options.samples
    with Output(options.json, streaming=options.stream, labelled=rows > 1) as output:
        plan = plan_pair(options)
        with console.status("loading the models"):
            pair = plan.load()
        request = _request(options, pair, prompts)
        return _run_batches(request, output, console)


def _prompts(options: argparse.Namespace) -> list[Any]:
    prompts = list(options.prompts)
    for path in options.prompt_file:
        prompts += read_prompts(path, options.field)
    prompts = prompts[: options.limit]
    if not prompts:
        raise ValueError("there are no prompts in the files that were given")
    return [as_chat(prompt, options.system) for prompt in prompts] if options.chat else prompts


def _request(options: argparse.Namespace, pair: Pair, prompts: list[Any]) -> Request:
    """Checks all prompts and settings, so that a long run cannot fail at its last prompt."""
    flags = given(
        temperature=options.temperature, top_k=options.top_k, top_p=options.top_p, stop_strings=options.stop
    )
    settings = {**pair.sampling, **dict(options.set), **flags}
    target = pair.target
    vocab = target.model.vocab_size if target.tokenizer is None else target.tokenizer.vocab_size
    try:
        wanted = resolve(target.defaults, {**settings, "max_new_tokens": options.max_new_tokens})
        ids = token_lists(prompts, target.tokenizer, min(vocab, target.model.vocab_size))
    except TypeError as error:
        raise ValueError(str(error)) from error
    context = target.model.max_length
    for index, prompt in enumerate(ids):
        if len(prompt) + (wanted.max_new_tokens or 1) > context:
            raise ValueError(
                f"prompt {index} has {len(prompt)} tokens and asks for {wanted.max_new_tokens or 1} more, "
                f"but the target's context is {context}: shorten the prompt or --max-new-tokens"
            )
    return Request(_with_draft_length(pair, options), prompts, ids, settings, options)


def _with_draft_length(pair: Pair, options: argparse.Namespace) -> Pair:
    """The pair with a method whose draft length is a number, so that every record says which."""
    if pair.draft is None:
        return pair
    models = [part for model in (pair.target, pair.draft) for part in (model.model, model.params)]
    rows = options.batch * options.samples
    return dataclasses.replace(pair, method=sbjax.resolve_draft_length(pair.method, *models, rows=rows))


def _run_batches(request: Request, output: Output, console: Console) -> int:
    """Generates; says at the end what happened, also after Ctrl-C."""
    runs: list[dict[str, Any]] = []
    reasons: set[str] = set()
    try:
        with _bar(request, console) as done:
            for first in range(0, len(request.ids), request.options.batch):
                result = _batch(request, first, output)
                runs.append({**result.statistics, "seconds": result.decode_seconds})
                reasons |= {generation.finish_reason for generation in result.generations}
                done(min(first + request.options.batch, len(request.ids)))
                if "interrupted" in reasons:
                    raise KeyboardInterrupt
    finally:
        if runs:
            _report(request, runs, console)
    if "invalid" in reasons:
        raise ValueError("the target gave NaN or infinite logits; texts end before them (see finish_reason)")
    return 0


def _batch(request: Request, first: int, output: Output) -> sbjax.Result:
    """Generates for the prompts from number ``first`` on and writes their continuations."""
    options, pair = request.options, request.pair
    ids = request.ids[first : first + options.batch]
    rows = [first * options.samples + row for row in range(len(ids) * options.samples)]
    labels = {row: request.label(row) for row in rows}

    def show(row: int, text: str) -> None:
        output.show(rows[row], text, labels[rows[row]])

    result = sbjax.generate(
        pair.target,
        ids,
        draft=pair.draft,
        method=pair.method,
        predictor=pair.predictor,
        rule=options.rule,
        max_new_tokens=options.max_new_tokens,
        samples=options.samples,
        seed=options.seed,
        row_ids=rows,
        log_probs=options.log_probs,
        on_text=show if options.stream else None,
        **request.settings,
    )
    output.end_lines(labels)
    for row, generation in zip(rows, result.generations, strict=True):
        output.write(generation, labels[row], _record(request, row))
    return result


def _record(request: Request, row: int) -> dict[str, Any]:
    """What a JSON line says beside the continuation: all that is needed to make it again."""
    options, index = request.options, row // request.options.samples
    return {
        "prompt": request.prompts[index],
        "prompt_index": index,
        "row": row,
        "seed": options.seed,
        "method": {"name": type(request.pair.method).__name__, **dataclasses.asdict(request.pair.method)},
        "rule": options.rule,
        "settings": request.settings,
    }


def _bar(request: Request, console: Console) -> contextlib.AbstractContextManager:
    """A progress bar over the prompts; none for a single batch, nor beside a stream."""
    hidden = len(request.ids) <= request.options.batch or request.options.stream
    return bar_of("prompts", len(request.ids), console, hidden=hidden)


def _report(request: Request, runs: list[dict[str, Any]], console: Console) -> None:
    method = request.pair.method
    name = type(method).__name__ + (f"({method.draft_length})" if method.draft_length else "")
    figures = {**add_counts(runs), "seconds": sum(run["seconds"] for run in runs)}
    console.print(statistics_table(f"{name}, seconds of decoding with compilation", {"all": figures}))
