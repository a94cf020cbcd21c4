"""The bars of a recording and of a training."""

import contextlib
from collections.abc import Callable, Iterator

from rich import progress
from rich.console import Console


@contextlib.contextmanager
def bar_of(label: str, total: int, console: Console, note: str) -> Iterator[Callable[[int, str], None]]:
    """A progress bar; yields a function of how many are done and a note."""
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn(note),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)
