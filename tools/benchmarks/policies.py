"""``policies``: every method at its own best settings, replayed over recorded texts of a real pair.

The target's text and both models' rows along it are recorded once (``replay.recording``); then the real
engine runs every policy and setting over the recording in seconds. Settings are chosen on tuning prompts,
for each suite, temperature and ratio ``c`` apart, figures are of the reported prompts. Speed-ups are those
of the device-time model with each model on a device of its own.
"""

import argparse
import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from replay.cases import Case, record_cases
from replay.predictors import train_predictor
from replay.recording import LAYERS
from replay.replaying import Figures, Recording, replay
from rich.console import Console
from rich.progress import track
from rich.table import Table

import sbjax
from benchmarks.asked import choose
from benchmarks.results import Results
from sbjax.methods import PEARL, AdaEDL, SpecBranch, SpS

Runs = dict[tuple, Figures]
"""By method, suite, temperature and part."""

LENGTHS = (3, 5, 8, 10, 15)
EPSILONS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)
TRUST = (0.0, 0.6, 0.8)
PARTS = ("tuning", "reported")
FAST_ENOUGH = {
    "point": ("PEARL", 1.0),
    "point, H-RAD": ("PEARL", 1.0),
    "outcomes K=8": ("PEARL", 1.15),
}
"""Where the setting with the fewest rollbacks is shown too: among those that are, on the tuning prompts, at
least so many times as fast as the best of a method."""


def settings() -> dict[str, list[sbjax.Method]]:
    """The settings that every method may choose from."""
    grid = itertools.product
    return {
        "SpS": [SpS(g) for g in (2, 3, 4, 6, 8, 12)],
        "AdaEDL": [AdaEDL(16, threshold=t) for t in (0.2, 0.4, 0.6, 0.75)],
        "PEARL": [PEARL(g) for g in LENGTHS],
        "outcomes K=8": [SpecBranch(g, branches=8, epsilon=e) for g, e in grid(LENGTHS, (0.0, 0.3, 0.5))],
        "outcomes K=4": [SpecBranch(g, branches=4) for g in LENGTHS],
        "point": [
            SpecBranch(g, branches=32, hedge="point", epsilon=e) for g, e in grid((3, 5, 10, 15), EPSILONS)
        ],
        "point, H-RAD": [
            SpecBranch(g, branches=32, hedge="point", epsilon=e, features=LAYERS + 1, trust=t)
            for g, e, t in grid((5, 10), (0.3, 0.5), TRUST)
        ],
    }


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module.

    Raises:
      ValueError: a method is unknown, or there are too few prompts.
    """
    chosen = choose(settings(), options.methods, "PEARL")
    cases = record_cases(options, console)
    predictor = None
    if any(getattr(method, "features", 0) for methods in chosen.values() for method in methods):
        predictor, accuracy = train_predictor([case.training for case in cases], options.hrad_lengths)
        results.put(predictor=accuracy)
    parts = [getattr(case, part) for case in cases for part in PARTS]
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    keys = list(itertools.product(cases, options.c))
    found = [{"suite": case.suite, "temperature": case.temperature, "c": c, "rows": []} for case, c in keys]
    for name, methods in chosen.items():
        runs = _replay_all(name, methods, cases, together, predictor, console)
        for entry, (case, c) in zip(found, keys, strict=True):
            entry["rows"].append(_best(methods, name, case, c, runs))
            if name in FAST_ENOUGH:
                other, share = FAST_ENOUGH[name]
                speed = next(row["tuning_speed_up"] for row in entry["rows"] if row["method"] == other)
                entry["rows"].append(_fewest_rollbacks(methods, name, case, c, runs, share * speed))
        results.put(cases=found)
    for entry in found:
        console.print(_table(entry))


def _replay_all(name: str, methods, cases: list[Case], together, predictor, console: Console) -> Runs:
    """Every setting of a method, on both parts of all cases at once."""
    learned = bool(getattr(methods[0], "features", 0))
    recorded = Recording.of(together, features=learned)
    bounds = np.cumsum([0] + [len(getattr(case, part)["length"]) for case in cases for part in PARTS])
    places = itertools.product(cases, PARTS), itertools.pairwise(bounds)
    rows = {
        (case.suite, case.temperature, part): slice(*ends) for (case, part), ends in zip(*places, strict=True)
    }
    runs = {}
    for method in track(methods, name, console=console):
        replayed = replay(method, recorded, predictor if learned else None)
        runs |= {(method, *key): replayed.figures(part) for key, part in rows.items()}
    return runs


def _best(methods, name: str, case: Case, c: float, runs) -> dict[str, Any]:
    """The setting that is fastest on the tuning prompts."""
    return _row(
        max(methods, key=lambda m: runs[m, case.suite, case.temperature, "tuning"].speed_up(c)),
        name, case, c, runs,
    )  # fmt: skip


def _fewest_rollbacks(methods, name: str, case: Case, c: float, runs, least: float) -> dict[str, Any]:
    """Among the settings that are at least so fast on the tuning prompts, the one that rolls back least.

    Where none is so fast it is the fastest.
    """

    def tuned(method) -> Figures:
        return runs[method, case.suite, case.temperature, "tuning"]

    fast = [method for method in methods if tuned(method).speed_up(c) >= least]
    fast = fast or [max(methods, key=lambda method: tuned(method).speed_up(c))]
    chosen = min(fast, key=lambda method: tuned(method).rolled_back / max(1, tuned(method).drafted))
    return _row(chosen, name, case, c, runs) | {"method": f"{name}, fewest rollbacks"}


def _row(method, name: str, case: Case, c: float, runs) -> dict[str, Any]:
    tuned, reported = (runs[method, case.suite, case.temperature, part] for part in ("tuning", "reported"))
    fields = {field: value for field, value in dataclasses.asdict(method).items() if value is not None}
    return {"method": name, "settings": fields, "tuning_speed_up": tuned.speed_up(c), **reported.summary(c)}


def _table(entry: dict[str, Any]) -> Table:
    table = Table(title=f"{entry['suite']}, temperature {entry['temperature']}, c = {entry['c']}")
    columns: dict[str, Callable[[dict], str]] = {
        "method": lambda row: row["method"],
        "settings": lambda row: " ".join(
            f"{key}={value}" for key, value in row["settings"].items() if key in SHOWN
        ),
        "speed-up": lambda row: f"{row['speed_up']:.2f}",
        "tokens a round": lambda row: f"{row['tokens_a_round']:.2f}",
        "acceptance": lambda row: f"{row['acceptance']:.1%}",
        "rolled back": lambda row: f"{row['rollback']:.1%}",
        "trimmed": lambda row: f"{row['trim']:.1%}",
        "hit rate": lambda row: f"{row['hit_rate']:.1%}",
    }
    for column in columns:
        table.add_column(column)
    for row in entry["rows"]:
        table.add_row(*(show(row) for show in columns.values()))
    return table


SHOWN = ("draft_length", "branches", "epsilon", "trust", "threshold", "target_acceptance")
