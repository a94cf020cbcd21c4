"""Progress bars on stderr: how many are done of how many, for how long, and how long it will take."""

import contextlib
from collections.abc import Callable, Iterator

from rich import progress
from rich.console import Console


@contextlib.contextmanager
def bar_of(
    label: str, total: int, console: Console, *, note: str = "", hidden: bool = False
) -> Iterator[Callable[..., None]]:
    """Shows a bar while the block runs.

    Args:
      label: what is counted.
      total: how many in all.
      console: where; nothing is shown if it is no terminal.
      note: a format of ``{task.fields[note]}`` for what is said beside the numbers; "" says nothing.
      hidden: whether to show nothing anyway.

    Yields:
      A function of how many are done, and the note where there is one.
    """
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        *([progress.TextColumn(note)] if note else []),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    quiet = hidden or not console.is_terminal
    # Texts on stdout go around the bar where both are on one terminal.
    both = console.file.isatty()
    with progress.Progress(*columns, console=console, disable=quiet, redirect_stdout=both) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda done, note="": bar.update(task, completed=done, note=note)
