"""The bar of a training: how much is over, the loss, tokens a second."""

import contextlib
import time
from collections.abc import Callable, Iterator

from rich import progress
from rich.console import Console


@contextlib.contextmanager
def training_bar(label: str, console: Console) -> Iterator[Callable[[float, float, int], None]]:
    """Shows a bar while the block runs.

    Args:
      label: what is being trained.
      console: where.

    Yields:
      A function of how much is over (0 to 1), the loss of the step, and the tokens in it.
    """
    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("loss {task.fields[loss]:.3f}  {task.fields[rate]:.0f} tokens/s"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=1.0, loss=float("nan"), rate=0.0)
        smooth, before = None, time.monotonic()

        def advance(done: float, loss: float, tokens: int) -> None:
            nonlocal smooth, before
            now = time.monotonic()
            smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss
            bar.update(task, completed=done, loss=smooth, rate=tokens / max(now - before, 1e-9))
            before = now

        yield advance
