"""A progress bar in bytes."""

import contextlib
from collections.abc import Callable, Iterator

from rich import progress
from rich.console import Console


@contextlib.contextmanager
def byte_progress(label: str, total: int, enabled: bool) -> Iterator[Callable[[int], None]]:
    """Shows a bar on stderr while the block runs.

    Args:
      label: what is being done.
      total: bytes in all.
      enabled: whether anything is shown.

    Yields:
      A function that takes the bytes just done.
    """
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not enabled,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
