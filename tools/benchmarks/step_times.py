"""``step-times``: a target forward by tokens, a draft step by branches; ``sbjax.StepTimes`` reads the file.

All widths take turns. A step is timed in a compiled loop of what rounds run (``sbjax.step_timing``).
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from command_line.timing import turns
from rich.console import Console
from rich.table import Table

import sbjax
from benchmarks.results import Results
from sbjax.step_timing import Timer, draft_timer, target_timer

LABELS = {"target": "target forward, {} tokens", "draft": "draft step, {} branches"}


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module."""
    timers = _timers(options, console)
    times: dict[tuple[str, int], list[float]] = {name: [] for name in timers}
    for name in turns(list(timers), options.turns):
        times[name].append(timers[name]())
        results.put(turns=_by_model(times))
    medians = {name: statistics.median(each) for name, each in times.items()}
    tables = _by_model(medians)
    results.put(target_seconds=tables["target"], draft_seconds=tables["draft"])
    if {("target", 1), ("draft", 1)} <= medians.keys():
        results.put(c=medians["target", 1] / medians["draft", 1])
    console.print(_table(medians, results.content.get("c")))


def _timers(options: argparse.Namespace, console: Console) -> dict[tuple[str, int], Timer]:
    """A compiled loop for each width of each model."""
    found = {}
    for name, make, widths in (
        ("target", target_timer, options.widths),
        ("draft", draft_timer, options.branches),
    ):
        loaded = sbjax.load(Path(getattr(options, name)), options.dtype)
        for width in sorted(set(widths)):
            console.print(f"compiling: {LABELS[name].format(width)}")
            found[name, width] = make(
                loaded.model, loaded.params, width, rows=options.rows, slots=options.slots
            )
    return found


def _by_model(values: dict[tuple[str, int], Any]) -> dict[str, dict[str, Any]]:
    """Values of (model, width) as one table a model, with names for a JSON file."""
    return {
        name: {str(width): value for (of, width), value in values.items() if of == name} for name in LABELS
    }


def _table(medians: dict[tuple[str, int], float], c: float | None) -> Table:
    ratio = "" if c is None else f"; c = {c:.2f}"
    table = Table(title=f"Milliseconds of a step, median{ratio}", title_justify="left")
    for name in ("", "ms", "of the first"):
        table.add_column(name, justify="right" if name else "left")
    first: dict[str, float] = {}
    for (name, width), time in medians.items():
        relative = time / first.setdefault(name, time)
        table.add_row(LABELS[name].format(width), f"{time * 1e3:,.3f}", f"{relative:.2f}")
    return table
