"""``transformers``: tokens a second of sbjax and of transformers on the same prompts, greedy, batch 1.

Each library has a process of its own; they take turns, prompt by prompt. torch's thread count and the
settings of assisted generation are chosen on the tuning prompts: the better ones are reported.
"""

import argparse
import contextlib
import importlib.metadata
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from command_line.timing import turns
from rich.console import Console
from rich.table import Table

import sbjax
from benchmarks.results import Results
from benchmarks.suites import Suite, read_suite
from benchmarks.worker import Worker
from sbjax.generation_config import GenerationDefaults
from sbjax.start import bucket

ASSISTANTS = {
    "constant 5": {
        "num_assistant_tokens": 5,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    },
    "default": {},
}

Ask = Callable[..., dict[str, Any]]


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module."""
    tokenizer = sbjax.Tokenizer.from_folder(options.target)
    stop_ids = GenerationDefaults.from_folder(options.target, tokenizer).stop_ids
    suite = read_suite(options.prompts, tokenizer, options)
    needed = suite.longest + options.max_new_tokens + options.draft_length + 1
    with contextlib.ExitStack() as stack:
        console.print("loading the models in both libraries")
        workers = {
            side: stack.enter_context(Worker(side, target, draft))
            for side, target, draft in (
                ("sbjax", Path(options.target), Path(options.draft)),
                (
                    "transformers",
                    Path(options.hf_target or options.target),
                    Path(options.hf_draft or options.draft),
                ),
            )
        }
        libraries = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
        results.put(libraries=libraries, reported_prompts=suite.numbers)
        common = {"max_new_tokens": options.max_new_tokens, "stop_ids": stop_ids}
        sides = _sides(workers, options, {**common, "slots": bucket(needed)}, common)
        _measure(sides, suite, options, results, console)


def _sides(
    workers: Mapping[str, Worker], options: argparse.Namespace, ours: dict, theirs: dict
) -> dict[str, Ask]:
    """Every way of decoding by its name: a function of a prompt."""

    def side(worker: Worker, **settings: Any) -> Ask:
        return lambda prompt, **change: worker.ask(**{**settings, "prompt": prompt, **change})

    sbjax_worker, other = workers["sbjax"], workers["transformers"]
    found = {
        "sbjax plain": side(sbjax_worker, draft_length=0, **ours),
        f"sbjax SpS({options.draft_length})": side(sbjax_worker, draft_length=options.draft_length, **ours),
    }
    for threads in options.threads:
        name = f"{threads} thread{'s' if threads > 1 else ''}"
        found[f"transformers plain, {name}"] = side(other, threads=threads, assistant=None, **theirs)
        for label, settings in ASSISTANTS.items():
            found[f"transformers assisted {label}, {name}"] = side(
                other, threads=threads, assistant=settings, **theirs
            )
    return found


def _measure(
    sides: dict[str, Ask], suite: Suite, options: argparse.Namespace, results: Results, console: Console
) -> None:
    """Warms up, tunes, reports."""
    for ask in sides.values():
        ask(suite.tuning[0], max_new_tokens=2)
    theirs = {name: ask for name, ask in sides.items() if name.startswith("transformers")}
    tuning = _answers(theirs, suite.tuning, results, "tuning", console)
    speed = {name: _speed(answers)["tokens_a_second"] for name, answers in tuning.items()}
    chosen = [name for name in sides if name not in theirs]
    for kind in ("transformers plain", "transformers assisted"):
        chosen.append(max((name for name in theirs if name.startswith(kind)), key=speed.__getitem__))
    results.put(tuning_tokens_a_second=speed, reported_sides=chosen)
    answers = _answers({name: sides[name] for name in chosen}, suite.reported, results, "reported", console)
    speeds = {name: _speed(found) for name, found in answers.items()}
    plain, speculative, other, assisted = answers
    results.put(
        speeds=speeds,
        plain_over_transformers=_ratios(answers[plain], answers[other]),
        speculative_over_assisted=_ratios(answers[speculative], answers[assisted]),
        same_text={name: _same(answers[plain], found) for name, found in answers.items() if name != plain},
    )
    console.print(_table(results.content))


def _answers(
    sides: Mapping[str, Ask], prompts: Sequence[list[int]], results: Results, key: str, console: Console
) -> dict[str, list[dict[str, Any]]]:
    """Has every side continue every prompt, in another order from prompt to prompt."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for number, name in enumerate(turns(list(sides), len(prompts))):
        prompt = prompts[number // len(sides)]
        answer = sides[name](prompt)
        answers[name].append(answer)
        results.put(**{key: answers})
        console.print(
            f"{key} prompt {number // len(sides) + 1} of {len(prompts)}: {name}: "
            f"{len(answer['tokens'])} tokens in {answer['seconds']:.1f} s"
        )
    return answers


def _speed(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Tokens a second over all prompts, with and without the reading of the prompt."""
    tokens = sum(len(answer["tokens"]) for answer in answers)
    return {
        "tokens": tokens,
        "tokens_a_second": tokens / sum(answer["seconds"] for answer in answers),
        "decode_tokens_a_second": tokens / sum(answer["decode_seconds"] for answer in answers),
    }


def _ratios(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """How many times the tokens a second of theirs ours are."""

    def rate(answer: Mapping[str, Any], key: str) -> float:
        return len(answer["tokens"]) / answer[key]

    of_prompts = [rate(o, "seconds") / rate(t, "seconds") for o, t in zip(ours, theirs, strict=True)]
    one, other = _speed(ours), _speed(theirs)
    return {
        "of_totals": one["tokens_a_second"] / other["tokens_a_second"],
        "median_of_prompts": statistics.median(of_prompts),
        "smallest_of_prompts": min(of_prompts),
        "of_totals_decoding_only": one["decode_tokens_a_second"] / other["decode_tokens_a_second"],
    }


def _same(plain: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    same = sum(one["tokens"] == other["tokens"] for one, other in zip(plain, others, strict=True))
    return f"{same} of {len(plain)}"


def _table(content: Mapping[str, Any]) -> Table:
    count = len(content["reported_prompts"])
    table = Table(title=f"Greedy, batch 1, {count} prompts, processes taking turns", title_justify="left")
    table.add_column("")
    for name in ("tokens/s", "decoding only", "text of sbjax plain"):
        table.add_column(name, justify="right")
    for name, speed in content["speeds"].items():
        same = content["same_text"].get(name, "")
        table.add_row(name, f"{speed['tokens_a_second']:.2f}", f"{speed['decode_tokens_a_second']:.2f}", same)
    for key, label in (
        ("plain_over_transformers", "plain / transformers plain"),
        ("speculative_over_assisted", "SpS / transformers assisted"),
    ):
        ratio = content[key]
        table.add_row(label, f"{ratio['of_totals']:.2f}", f"{ratio['of_totals_decoding_only']:.2f}", "")
    return table
