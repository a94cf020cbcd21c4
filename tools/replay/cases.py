"""The cases of a study: every suite at every temperature, recorded in batches that are kept."""

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.asked import load_pair
from benchmarks.suites import Suite, read_suite
from rich.console import Console
from rich.progress import track

import sbjax
from replay.recording import fingerprint, record, recording, weakened
from sbjax.start import bucket

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Case:
    """One suite at one temperature.

    Attributes:
      suite: its name.
      temperature: of all its rows.
      tuning: recording of the prompts that settings are chosen on.
      reported: of those that figures are of.
      training: what H-RAD learns from: further prompts, at the first temperature where they were asked for,
        elsewhere the tuning prompts.
    """

    suite: str
    temperature: float
    tuning: Arrays
    reported: Arrays
    training: Arrays


def record_cases(options: argparse.Namespace, console: Console) -> list[Case]:
    """Records what is not recorded yet; loads the models only if something is missing.

    Args:
      options: of the ``policies`` benchmark.
      console: for a bar.

    Raises:
      ValueError: a suite has too few prompts, or a file holds a recording of something else.
    """
    pair = functools.cache(lambda: load_pair(options))
    tokenizer = sbjax.Tokenizer.from_folder(options.target)
    cases = []
    for path, temperature in itertools.product(options.prompts, options.temperature):
        suite = read_suite(path, tokenizer, options)
        if temperature != options.temperature[0]:
            suite = dataclasses.replace(suite, training=[])
        cases.append(_case(suite, temperature, _batches(suite, temperature, pair, options, console), options))
    return cases


def _batches(
    suite: Suite, temperature: float, pair: Callable, options: argparse.Namespace, console: Console
) -> list[Arrays]:
    """The recordings of all prompts of a suite, in the order tuning, reported, training."""
    prompts = suite.tuning + suite.reported + suite.training
    found, title = [], f"{suite.name}, temperature {temperature}"
    for first in track(range(0, len(prompts), options.batch), title, console=console):
        some = prompts[first : first + options.batch]
        name = f"{suite.name}-{temperature}-{first}-{first + len(some)}.npz"
        slots = bucket(options.max_prompt_tokens + options.max_new_tokens)
        asked: dict[str, Any] = {
            "temperature": temperature, "first": first, "new_tokens": options.max_new_tokens, "slots": slots,
        }  # fmt: skip
        make = functools.partial(_record, pair, some, asked)
        found.append(recording(options.recordings / name, {**asked, "prompts": fingerprint(some)}, make))
    return found


def _record(pair: Callable, prompts: list[list[int]], asked: dict[str, Any]) -> Arrays:
    target, draft = pair()
    return record(target, draft, prompts, **asked)


def _case(suite: Suite, temperature: float, batches: list[Arrays], options: argparse.Namespace) -> Case:
    whole = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    whole = weakened(whole, options.weaken)
    bounds = np.cumsum([0, len(suite.tuning), len(suite.reported), len(suite.training)])
    parts = [slice(*pair) for pair in itertools.pairwise(bounds)]
    tuning, reported, training = ({name: value[part] for name, value in whole.items()} for part in parts)
    return Case(suite.name, temperature, tuning, reported, training if suite.training else tuning)
