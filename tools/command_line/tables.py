"""Statistics as tables for people."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.table import Table

_WIDTH = 132


class _Row(NamedTuple):
    key: str
    label: str
    show: Callable[[Any], str]
    of_drafts: bool = False  # means nothing where nothing was drafted


def _count(value: int) -> str:
    return f"{value:,}"


def _ratio(value: float) -> str:
    return f"{value:.2f}"


def _ratios(values: Sequence[float]) -> str:
    return " ".join(map(_ratio, values))


def _percent(value: float) -> str:
    return f"{value:.1%}"


_COUNTS = (
    _Row("tokens", "tokens", _count),
    _Row("rounds", "rounds of a row", _count),
    _Row("drafted", "drafted", _count, True),
    _Row("accepted", "accepted", _count, True),
    _Row("rolled_back", "rolled back", _count, True),
    _Row("target_forwards", "target forwards", _count),
    _Row("draft_forwards", "draft forwards", _count, True),
)
_RATIOS = (
    _Row("mean_accepted_length", "tokens a round", _ratio),
    _Row("acceptance", "acceptance", _percent, True),
    _Row("acceptance_by_position", "acceptance by position", _ratios, True),
    _Row("rollback", "rolled back of drafted", _percent, True),
    _Row("seconds", "seconds", _ratio),
    _Row("tokens_a_second", "tokens a second", _ratio),
)


def make_console() -> Console:
    """Stdout as tools print tables to it: in a file they have room, on a terminal as much as it has."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)


def add_counts(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the summaries of several runs (``sbjax.summary``).

    Ratios are made anew from the counts. Acceptance, whose denominator a summary does not hold, is kept
    where there is one run only.
    """
    if len(runs) == 1:
        return dict(runs[0])
    total = {row.key: sum(run[row.key] for run in runs) for row in _COUNTS}
    return {
        **total,
        "mean_accepted_length": total["tokens"] / max(1, total["rounds"]),
        "rollback": total["rolled_back"] / max(1, total["drafted"]),
    }


def statistics_table(title: str, sides: Mapping[str, Mapping[str, Any]]) -> Group:
    """A table of summaries side by side.

    Args:
      title: what is printed above it.
      sides: for each side its summary and, where there is a time, its "seconds".
    """
    table = Table()
    table.add_column("")
    for name in sides:
        table.add_column(name, justify="right")
    full = [_with_speed(figures) for figures in sides.values()]
    for row in (*_COUNTS, *_RATIOS):
        cells = [_cell(row, figures) for figures in full]
        if any(cells):
            table.add_row(row.label, *cells)
    return Group(title, table)  # a title of the table itself would be wrapped to its width


def _with_speed(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    if not figures.get("seconds"):
        return figures
    return {**figures, "tokens_a_second": figures["tokens"] / figures["seconds"]}


def _cell(row: _Row, figures: Mapping[str, Any]) -> str:
    if row.key not in figures or (row.of_drafts and not figures["drafted"]):
        return ""
    return row.show(figures[row.key])
