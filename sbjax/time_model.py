"""The time a counted run would take on other devices: formula and limits are in docs/time_model.md.

Times are in any one unit; step times are functions, so that they can come from a ratio, from
measurements or from a roofline.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbjax.methods import Method
from sbjax.statistics import Statistics, summary

Run = Statistics | Mapping[str, Any]
"""Counters of a run: ``Statistics``, or what ``summary`` makes of them."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Measured times by width, with straight lines in between.

    Attributes:
      what: of what these are the times, for messages.
      times: pairs of a width and its time, widths rising.
    """

    what: str
    times: tuple[tuple[int, float], ...]

    def __post_init__(self):
        widths = [width for width, _ in self.times]
        if not widths or widths != sorted(set(widths)) or widths[0] < 1:
            raise ValueError(f"times of {self.what} need rising widths of at least 1, got {widths}")
        if not all(math.isfinite(time) and time > 0 for _, time in self.times):
            raise ValueError(f"times of {self.what} must be positive, got {self.times}")

    def __call__(self, width: int) -> float:
        """The time of a width; refuses one outside what was measured."""
        widths, times = zip(*self.times, strict=True)
        if not widths[0] <= width <= widths[-1]:
            raise ValueError(f"{self.what} were measured for {widths[0]} to {widths[-1]}, not for {width}")
        return float(np.interp(width, widths, times))


@dataclasses.dataclass(frozen=True)
class Roofline:
    """What a device needs at least: the longer of reading all weights and of computing.

    Attributes:
      weight_bytes: bytes of weights that a forward reads.
      flops: operations a token, about twice the number of weights.
      bandwidth: bytes a second.
      peak: operations a second.
      rows: ``B``; every row has as many tokens or branches.
    """

    weight_bytes: float
    flops: float
    bandwidth: float
    peak: float
    rows: int = 1

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _positive(field.name, getattr(self, field.name))

    def __call__(self, width: int) -> float:
        """Seconds of a forward of so many tokens or branches a row."""
        return max(self.weight_bytes / self.bandwidth, self.rows * width * self.flops / self.peak)


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """Times of single steps for a batch of the size that was counted, both in the same unit.

    Attributes:
      target: of a target forward, by tokens ``T`` a row.
      draft: of a draft step, by branches ``K`` a row.
    """

    target: Callable[[int], float]
    draft: Callable[[int], float]

    @classmethod
    def from_ratio(cls, c: float) -> "StepTimes":
        """Only the speed ratio: ``t_target = c`` at every width, ``t_draft = 1`` for any ``K``."""
        _positive("c", c)
        return cls(lambda tokens: float(c), lambda branches: 1.0)

    @classmethod
    def from_tables(cls, target: Mapping[int, float], draft: Mapping[int, float]) -> "StepTimes":
        """Measured times by tokens and by branches; ``Measured`` says how they are read."""
        pairs = (
            sorted((int(width), float(time)) for width, time in table.items()) for table in (target, draft)
        )
        names = ("target forwards by tokens", "draft steps by branches")
        return cls(*(Measured(name, tuple(each)) for name, each in zip(names, pairs, strict=True)))

    @classmethod
    def from_file(cls, path: str | Path) -> "StepTimes":
        """Reads a JSON file with tables "target_seconds" and "draft_seconds", as ``step-times`` writes it.

        Raises:
          ValueError: the file is something else, or its measurement was cut short.
        """
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        names = ("target_seconds", "draft_seconds")
        if not isinstance(content, dict) or not all(isinstance(content.get(name), dict) for name in names):
            raise ValueError(f"{path} has no step times: target_seconds and draft_seconds are expected")
        if not content.get("complete", True):
            raise ValueError(f"{path} was cut short: measure again")
        return cls.from_tables(*(content[name] for name in names))


@dataclasses.dataclass(frozen=True)
class RunTime:
    """Modelled times of the rounds of a run; sums of them are those of several runs.

    Attributes:
      plain: of plain decoding of the same text.
      two_devices: with each model on a device of its own.
      one_device: with both models on one device.
    """

    plain: float
    two_devices: float
    one_device: float

    def __add__(self, other: "RunTime") -> "RunTime":
        return RunTime(
            *(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        )


def run_time(
    run: Run, method: Method, times: StepTimes, *, overhead: float = 0.0, plain_forwards: int | None = None
) -> RunTime:
    """The time that the rounds of a run would take.

    Args:
      run: its counters.
      method: how it was decoded.
      times: of single steps, for the same number of rows.
      overhead: what a round takes beside the forwards; plain decoding's rounds too.
      plain_forwards: forwards that plain decoding takes, the tokens of the longest row; None derives it,
        which needs ``Statistics`` of one run unless there was one row only.

    Raises:
      ValueError: ``plain_forwards`` cannot be derived, or a width has no time.
    """
    figures = summary(run) if isinstance(run, Statistics) else run
    if "target_forwards_by_width" not in figures:
        raise ValueError("these are counters of one row; forwards are counted for the whole batch only")
    widths = {int(width): int(count) for width, count in figures["target_forwards_by_width"].items() if count}
    rounds, steps = sum(widths.values()), int(figures["draft_forwards"])
    checking = {width: times.target(width) for width in widths}
    bookkeeping = rounds * overhead
    if method.overlapped:
        drafting = steps / max(1, rounds) * times.draft(method.branches)
        both = sum(count * max(checking[width], drafting) for width, count in widths.items())
        alone = sum(count * (checking[width] + drafting) for width, count in widths.items())
    else:
        chains = _chains(sum(count for width, count in widths.items() if width > 1), steps, times)
        both = alone = sum(count * checking[width] for width, count in widths.items()) + chains
    if plain_forwards is None:
        plain_forwards = _plain_forwards(run, figures, rounds)
    plain = plain_forwards * (times.target(1) + overhead)
    return RunTime(plain, both + bookkeeping, alone + bookkeeping)


def speed_up(
    runs: Run | Sequence[Run], method: Method, times: StepTimes, *, devices: int = 2, overhead: float = 0.0
) -> float:
    """How many times as fast as plain decoding runs would be, over all of them.

    Args:
      runs: counters of one run or of several.
      method: how they were decoded.
      times: of single steps.
      devices: 2 gives each model one of its own, 1 lets them share one.
      overhead: see ``run_time``.
    """
    if devices not in (1, 2):
        raise ValueError(f"devices must be 1 or 2, got {devices!r}")
    many = [runs] if isinstance(runs, Statistics | Mapping) else list(runs)
    modelled = [run_time(run, method, times, overhead=overhead) for run in many]
    total = sum(modelled, RunTime(0.0, 0.0, 0.0))
    if not total.one_device:
        raise ValueError("there are no rounds to model")
    return total.plain / (total.two_devices if devices == 2 else total.one_device)


def _chains(rounds: int, steps: int, times: StepTimes) -> float:
    """Draft time of serial rounds that drafted; the first forward of each reads two tokens."""
    if not steps:
        return 0.0
    first = min(rounds, steps)
    return first * times.draft(2) + (steps - first) * times.draft(1)


def _plain_forwards(run: Run, figures: Mapping[str, Any], rounds: int) -> int:
    """Tokens of the longest row."""
    one = isinstance(run, Statistics) and int(np.max(run.rounds)) == rounds
    if one:
        return int(np.max(run.emitted))
    if int(figures["rounds"]) == rounds:
        return int(figures["tokens"])
    raise ValueError(
        "these counters are of several rows together, and do not say how long the longest one is: "
        "pass sbjax.Statistics of single runs, or plain_forwards"
    )


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be positive, got {value!r}")
