"""Walks over a vocabulary that lies in VMEM: folds of many columns into one number a line.

A walk goes in units of 512 columns with one accumulator for each column of a unit, and reduces over lanes
once, at the end. The order is the same whatever the chunk, so sums are too.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

UNIT = 512
"""Columns that are worked on at once: four registers, so that the rounds of threefry overlap."""


class Plan(NamedTuple):
    """The static part of a kernel.

    Attributes:
      lines: positions in a block.
      vocab: columns that count.
      chunk: columns per step of a walk, a multiple of ``UNIT``.
      log_probs: whether the log-sum-exp is wanted.
      given: whether thresholds come from outside.
    """

    lines: int
    vocab: int
    chunk: int
    log_probs: bool
    given: bool


class Fold(NamedTuple):
    """How a walk gathers: first values, ``merge(gathered, later columns)``, and ``close`` over the lanes."""

    start: tuple
    merge: Callable
    close: Callable


def _over_lanes(start, merge, reduce) -> Fold:
    """A fold of one array by a plain reduction."""
    return Fold(
        (start,), lambda a, b: (merge(a[0], b[0]),), lambda a: (reduce(a[0], axis=-1, keepdims=True),)
    )


MAXIMUM = _over_lanes(np.float32(-np.inf), jnp.maximum, jnp.max)
MINIMUM = _over_lanes(np.float32(np.inf), jnp.minimum, jnp.min)
TOTAL = _over_lanes(np.float32(0), jnp.add, jnp.sum)
COUNTED = _over_lanes(np.int32(0), jnp.add, jnp.sum)


def _better(old, new):
    """Of two (score, index, logit) the better score; at equal scores the old one, its index is smaller."""
    wins = new[0] > old[0]
    return tuple(jnp.where(wins, b, a) for a, b in zip(old, new, strict=True))


def _best_lane(best):
    score = best[0].max(-1, keepdims=True)
    index = jnp.where(best[0] == score, best[1], np.iinfo(np.int32).max).min(-1, keepdims=True)
    return score, index, jnp.where(best[1] == index, best[2], -jnp.inf).max(-1, keepdims=True)


BEST = Fold((np.float32(-np.inf), np.int32(0), np.float32(-np.inf)), _better, _best_lane)


def walk(plan: Plan, fold: Fold, visit: Callable) -> tuple:
    """Folds ``visit(columns, start)`` over the vocabulary, in the same order whatever the chunk.

    Args:
      plan: the static part.
      fold: how.
      visit: from a slice of columns and its start to a tuple of ``[lines, width]``.

    Returns:
      A tuple of ``[lines, 1]``.
    """

    def blank(width):
        return tuple(jnp.full((plan.lines, width), x, x.dtype) for x in fold.start)

    def steps(units, start, stop, gathered):
        def step(i, gathered):
            for j in range(units):
                at = pl.multiple_of((start + i * units + j) * UNIT, UNIT)
                gathered = fold.merge(gathered, visit(pl.ds(at, UNIT), at))
            return gathered

        return jax.lax.fori_loop(0, (stop - start) // units, step, gathered) if stop > start else gathered

    whole, left = divmod(plan.vocab, UNIT)
    per_step = plan.chunk // UNIT
    result = None
    if whole:
        gathered = steps(per_step, 0, whole - whole % per_step, blank(UNIT))
        result = fold.close(steps(1, whole - whole % per_step, whole, gathered))
    if left:
        at = whole * UNIT
        tail = fold.close(fold.merge(blank(left), visit(pl.ds(at, left), at)))
        result = tail if result is None else fold.merge(result, tail)
    return result
