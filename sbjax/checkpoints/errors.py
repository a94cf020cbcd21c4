"""The error of everything that reads or writes checkpoints."""

from collections.abc import Iterable


class CheckpointError(ValueError):
    """A checkpoint cannot be read or written; the message names the file or weight and the way out."""


def some(names: Iterable[str], limit: int = 5) -> str:
    """Lists names for a message: the first few in order, and how many more there are."""
    names = sorted(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
