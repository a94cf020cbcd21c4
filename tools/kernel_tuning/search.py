"""The search: the most promising candidate first, and an end as soon as more of it is in vain."""

import dataclasses
from collections.abc import Callable, Sequence

from kernels_pallas.block_table import Blocks

MARGIN = 0.02
"""By how much another has to beat the default: no model and no measurement is better than that."""


class Refused(Exception):
    """A candidate that cannot be used; the message says why."""


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
      blocks: the best ones.
      seconds: what they take.
      default_seconds: what the first candidate takes; None if it was refused.
      tried: every candidate that was measured, and its seconds.
      refused: those that could not be used, and why.
      left: how many were not looked at.
    """

    blocks: Blocks
    seconds: float
    default_seconds: float | None
    tried: list[tuple[Blocks, float]]
    refused: list[tuple[Blocks, str]]
    left: int


def search(
    candidates: Sequence[Blocks],
    measure: Callable[[Blocks], float],
    bound: Callable[[Blocks], float] | None = None,
    patience: int = 4,
) -> Found:
    """Finds the candidate that takes least.

    Args:
      candidates: blocks, the default first.
      measure: seconds of one; raises ``Refused``.
      bound: what one takes at least. The others are then measured in this order, and none whose bound is no
        better than the best so far.
      patience: how many in a row may be no better before the search ends.

    Raises:
      ValueError: all were refused.
    """
    default, *others = candidates
    if bound is not None:
        others = sorted(others, key=bound)
    tried, refused, since = [], [], 0
    for blocks in (default, *others):
        best = min((seconds for _, seconds in tried), default=float("inf"))
        if since >= patience or (bound is not None and bound(blocks) >= best):
            break
        try:
            tried.append((blocks, measure(blocks)))
        except Refused as reason:
            refused.append((blocks, str(reason)))
            continue
        since = 0 if tried[-1][1] < best else since + 1
    if not tried:
        raise ValueError(
            f"none of {len(refused)} candidates can be used; of {refused[0][0]}: {refused[0][1]}"
        )
    blocks, seconds = min(tried, key=lambda each: each[1])
    before = tried[0][1] if tried[0][0] == default else None
    if before is not None and seconds > before * (1 - MARGIN):
        blocks, seconds = default, before
    return Found(blocks, seconds, before, tried, refused, len(candidates) - len(tried) - len(refused))
