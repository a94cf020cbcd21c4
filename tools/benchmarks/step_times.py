"""``step-times``: a target forward by tokens, a draft step by branches; ``sbjax.StepTimes`` reads the file.

All widths take turns. A step is timed in a compiled loop of what rounds run (``sbjax.step_timing``).
"""

import argparse
import statistics
from collections.abc import Callable, Iterable, Mapping
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
    models = {name: sbjax.load(Path(getattr(options, name)), options.dtype) for name in LABELS}
    widths = {"target": options.widths, "draft": options.branches}
    medians = measure(
        models, widths, options.rows, options.slots, options.turns, console,
        on_turn=lambda times: results.put(turns=by_model(times)),
    )  # fmt: skip
    tables = by_model(medians)
    results.put(target_seconds=tables["target"], draft_seconds=tables["draft"])
    if {("target", 1), ("draft", 1)} <= medians.keys():
        results.put(c=medians["target", 1] / medians["draft", 1])
    console.print(_table(medians, results.content.get("c")))


def measure(
    models: Mapping[str, sbjax.Model],
    widths: Mapping[str, Iterable[int]],
    rows: int,
    slots: int,
    count: int,
    console: Console,
    on_turn: Callable[[dict], Any] = lambda times: None,
) -> dict[tuple[str, int], float]:
    """Median seconds of a step, by model and width.

    Args:
      models: "target" and "draft".
      widths: for each of them, tokens or branches a row.
      rows: ``B``.
      slots: of the caches.
      count: turns.
      console: says what is being compiled.
      on_turn: called with all times so far.
    """
    timers: dict[tuple[str, int], Timer] = {}
    for name, make in (("target", target_timer), ("draft", draft_timer)):
        for width in sorted(set(widths[name])):
            console.print(f"compiling: {LABELS[name].format(width)}")
            model = models[name]
            timers[name, width] = make(model.model, model.params, width, rows=rows, slots=slots)
    times: dict[tuple[str, int], list[float]] = {name: [] for name in timers}
    for name in turns(list(timers), count):
        times[name].append(timers[name]())
        on_turn(times)
    return {name: statistics.median(each) for name, each in times.items()}


def by_model(values: dict[tuple[str, int], Any]) -> dict[str, dict[str, Any]]:
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
