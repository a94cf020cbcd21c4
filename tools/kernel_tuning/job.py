"""Goes over devices, kernels and shapes, and keeps what it finds."""

import argparse
import functools
from collections.abc import Sequence
from typing import NamedTuple

from command_line.bars import bar_of
from rich.console import Console
from rich.table import Table

from kernel_tuning import by_cost, by_time
from kernel_tuning.chips import CHIPS, HERE, Chip
from kernel_tuning.kernels import KERNELS, Problem, make_problem
from kernel_tuning.search import Found, search
from kernel_tuning.shapes import calls
from kernel_tuning.table_file import TableFile
from kernels_pallas import tuning


class Task(NamedTuple):
    """A problem on a device; the chip is None where it is the one at hand."""

    kind: str
    chip: Chip | None
    problem: Problem

    @property
    def by(self) -> str:
        """How candidates are compared."""
        return "time" if self.chip is None else "cost"


def tasks(options: argparse.Namespace) -> list[Task]:
    """What the flags ask for, each shape of a kernel once a device.

    Raises:
      ValueError: a device or a kernel cannot be had; the message says what to do.
    """
    found: dict[tuple[str, str, str], Task] = {}
    for name in options.device:
        chip, kind, platform = _device(name)
        known = [kernel for kernel, where in KERNELS if where == platform]
        for kernel in options.kernel or known:
            for call in calls(options):
                problem = make_problem(kernel, platform, call)
                found.setdefault((kind, problem.kernel, problem.shape), Task(kind, chip, problem))
    return list(found.values())


def _device(name: str) -> tuple[Chip | None, str, str]:
    """Chip, kind and platform."""
    if name == HERE:
        device = by_time.require_device()
        return None, tuning.KINDS.get(device.device_kind, device.device_kind), device.platform
    by_cost.require_libtpu()
    return CHIPS[name], CHIPS[name].kind, "tpu"


def run(options: argparse.Namespace, console: Console) -> None:
    """Searches for every task, and saves the table after each.

    Raises:
      ValueError: a task is not possible, or the table there is not valid.
    """
    todo, table = tasks(options), TableFile(options.table)
    if options.dry_run:
        console.print(_plan(todo, table))
        return
    done: list[tuple[Task, Found | None]] = []
    try:
        with bar_of("shapes", len(todo), Console(stderr=True), note="{task.fields[note]}") as show:
            for index, task in enumerate(todo):
                show(index, f"{task.kind}, {task.problem.kernel}, {task.problem.shape}")
                done.append((task, _tune(task, table, options.patience)))
            show(len(todo))
    finally:
        if done:
            console.print(_report(done))


def _tune(task: Task, table: TableFile, patience: int) -> Found | None:
    """Searches and saves; None where a measured entry is there that a model must not replace."""
    problem = task.problem
    if task.by == "cost" and table.how(task.kind, problem.kernel, problem.shape) == "time":
        return None
    if task.chip is None:
        found = search(problem.candidates, by_time.meter(problem), patience=patience)
    else:
        bound = functools.partial(problem.bound, task.chip)
        found = search(problem.candidates, by_cost.meter(task.chip, problem), bound, patience)
    table.put(task.kind, problem.kernel, problem.shape, found, task.by)
    return found


def _plan(todo: Sequence[Task], table: TableFile) -> Table:
    """What would be searched."""
    drawn = _columns("candidates", "by", "in the table")
    for task in todo:
        problem = task.problem
        how = table.how(task.kind, problem.kernel, problem.shape)
        cells = str(len(problem.candidates)), task.by, f"by {how}" if how else ""
        drawn.add_row(task.kind, problem.kernel, problem.shape, *cells)
    return drawn


def _report(done: Sequence[tuple[Task, Found | None]]) -> Table:
    """What was found."""
    drawn = _columns("blocks", "us", "default, us", "tried, refused, left")
    for task, found in done:
        cells = ("kept: it was measured", "", "", "")
        if found is not None:
            blocks = " ".join(f"{name}={size}" for name, size in found.blocks.items())
            before = "refused" if found.default_seconds is None else f"{found.default_seconds * 1e6:.1f}"
            counts = f"{len(found.tried)}, {len(found.refused)}, {found.left}"
            cells = blocks, f"{found.seconds * 1e6:.1f}", before, counts
        drawn.add_row(task.kind, task.problem.kernel, task.problem.shape, *cells)
    return drawn


def _columns(*more: str) -> Table:
    drawn = Table()
    for name in ("device", "kernel", "shape", *more):
        drawn.add_column(name)
    return drawn
