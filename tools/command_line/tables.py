"""Statistics as tables for people."""

import itertools
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


def _by_width(counts: Mapping[int, int]) -> str:
    return ", ".join(f"{width}: {count:,}" for width, count in counts.items())


def _verdicts(counts: Sequence[int]) -> str:
    return " / ".join(map(_count, counts)) if any(counts) else ""


_COUNTS = (
    _Row("tokens", "tokens", _count),
    _Row("rounds", "rounds of a row", _count),
    _Row("drafted", "drafted", _count, True),
    _Row("accepted", "accepted", _count, True),
    _Row("rolled_back", "rolled back", _count, True),
    _Row("trimmed", "trimmed", _count),
    _Row("kept", "kept by retention", _count),
    _Row("dropped", "dropped by retention", _count),
    _Row("branches", "branches", _count),
    _Row("hits_main", "hits of the main branch", _count),
    _Row("hits_hedge", "hits of a hedge", _count),
    _Row("misses", "misses", _count),
    _Row("hedge_drafted", "drafted by lost hedges", _count),
    _Row("verdicts", "H-RAD: none / undecided / all", _verdicts),
    _Row("target_forwards", "target forwards", _count),
    _Row("target_forwards_by_width", "target forwards by tokens", _by_width),
    _Row("draft_forwards", "draft forwards", _count, True),
)
_RATIOS = (
    _Row("mean_accepted_length", "tokens a round", _ratio),
    _Row("acceptance", "acceptance", _percent, True),
    _Row("acceptance_by_position", "acceptance by position", _ratios, True),
    _Row("rollback", "rolled back of drafted", _percent, True),
    _Row("trim", "trimmed of drafted", _percent),
    _Row("hit_rate", "hits of rounds with branches", _percent),
    _Row("seconds", "seconds", _ratio),
    _Row("tokens_a_second", "tokens a second", _ratio),
)
_SUMMED = {row.key for row in _COUNTS} | {"tested_by_position", "accepted_by_position"}


def make_console() -> Console:
    """Stdout as tools print tables to it: in a file they have room, on a terminal as much as it has."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)


def add_counts(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Joins the summaries of several runs (``sbjax.summary``): counts add up, ratios are made of them.

    A count that a run does not have, as of branches where there were none, is zero there.
    """
    if len(runs) == 1:
        return dict(runs[0])
    total: dict[str, Any] = {}
    for run in runs:
        for key in _SUMMED & set(run):
            total[key] = _plus(total[key], run[key]) if key in total else run[key]
    return total | _joined_ratios(total)


def _plus(one: Any, other: Any) -> Any:
    """The sum of two counts, or of all counts in two lists or tables."""
    if isinstance(one, Mapping):
        return {key: one.get(key, 0) + other.get(key, 0) for key in sorted({*one, *other})}
    if isinstance(one, Sequence):
        return [a + b for a, b in itertools.zip_longest(one, other, fillvalue=0)]
    return one + other


def _joined_ratios(total: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "mean_accepted_length": total["tokens"] / max(1, total["rounds"]),
        "rollback": total["rolled_back"] / max(1, total["drafted"]),
    }
    if "tested_by_position" in total:
        tested, accepted = total["tested_by_position"], total["accepted_by_position"]
        found["acceptance"] = sum(accepted) / max(1, sum(tested))
        found["acceptance_by_position"] = [a / max(1, t) for a, t in zip(accepted, tested, strict=True)]
    if "branches" in total:
        hits = total["hits_main"] + total["hits_hedge"]
        found["trim"] = total["trimmed"] / max(1, total["drafted"])
        found["hit_rate"] = hits / max(1, hits + total["misses"])
    return found


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
