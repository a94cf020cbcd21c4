"""The body of the TPU kernel of ``verify``: what is done with a block of lines that lies in VMEM.

Everything that is one number a line is a column ``[lines, 1]``.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels_pallas.verify.mosaic_tpu_walk import BEST, COUNTED, MAXIMUM, MINIMUM, TOTAL, Plan, walk
from kernels_pallas.verify.reference import LOWEST, largest
from kernels_pallas.verify.threefry import gumbel

NOISE, COUNT, MASS = 1, 2, 4
"""Bits of a mode, what a line or some line of a block asks for: a draw, a cut by top-k, a cut by top-p."""


def kernel(plan: Plan, modes, first, logits, ints, floats, token, found, tempered=None, mass=None):
    """Picks for one block.

    Args:
      plan: the static part.
      modes: ``[blocks]`` int32 in SMEM, the union of the modes of the lines of each block.
      first: ``[1]`` int32 in SMEM, index of column 0 in the whole vocabulary.
      logits: ``[lines, V]`` float32.
      ints: ``[lines, 4]`` int32: the two words of the key, how many tokens top-k keeps, the mode.
      floats: ``[lines, 3]`` float32: temperature, top-p, threshold.
      token: ``[lines, 1]`` int32, written: the pick.
      found: ``[lines, 4]`` float32, written: score, maximum (plus infinity for NaN), logit, log-sum-exp.
      tempered: ``[lines, V]`` float32, scratch; None if thresholds are given.
      mass: the same.
    """
    mode = modes[pl.program_id(0)]
    top = _maximum(plan, logits)
    if plan.given:
        threshold = floats[:, 2:3]
    else:
        threshold = jax.lax.cond(
            (mode & (COUNT | MASS)) != 0,
            lambda: _threshold(plan, mode, logits, ints, floats, top, tempered, mass),
            lambda: jnp.full_like(top, -jnp.inf),
        )
    score, index, logit = jax.lax.cond(
        (mode & NOISE) != 0,
        lambda: _sampled(plan, first[0], logits, ints, floats, threshold),
        lambda: _greedy(plan, logits),
    )
    token[...] = first[0] + index
    found[:, 0:1], found[:, 1:2] = score, top
    if plan.log_probs:
        found[:, 2:3], found[:, 3:4] = logit, _log_sum(plan, logits, top)


def _maximum(plan, logits):
    """The largest logit of each line, plus infinity where one is NaN."""

    def visit(columns, _):
        x = logits[:, columns]
        return (jnp.where(x < jnp.inf, x, jnp.inf),)

    return walk(plan, MAXIMUM, visit)[0]


def _log_sum(plan, logits, top):
    base = jnp.where(top > -jnp.inf, top, 0.0)
    return base + jnp.log(walk(plan, TOTAL, lambda at, _: (jnp.exp(logits[:, at] - base),))[0])


def _greedy(plan, logits):
    def visit(columns, start):
        x = logits[:, columns]
        return x, start + _lanes(x), x

    return walk(plan, BEST, visit)


def _sampled(plan, first, logits, ints, floats, threshold):
    keys, temperature = (ints[:, 0:1], ints[:, 1:2]), floats[:, 0:1]

    def visit(columns, start):
        x = logits[:, columns]
        index = start + _lanes(x)
        noise = gumbel(keys, first + index)
        return jnp.where(x >= threshold, x, -jnp.inf) + temperature * noise, index, x

    return walk(plan, BEST, visit)


def _lanes(x):
    return jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)


def _threshold(plan, mode, logits, ints, floats, top, tempered, mass):
    """The smallest logit ``[lines, 1]`` that top-k and top-p keep, see ``reference._searched``."""
    temperature, top_p = floats[:, 0:1], floats[:, 1:2]
    divisor = jnp.where(temperature > 0, temperature, 1.0)

    def temper(columns, _):
        relative = (logits[:, columns] - top) / divisor
        tempered[:, columns], mass[:, columns] = relative, jnp.exp(relative)
        return (mass[:, columns],)

    def total(least):
        kept = walk(plan, TOTAL, lambda at, _: (jnp.where(tempered[:, at] >= least, mass[:, at], 0.0),))
        return kept[0]

    def count(least):
        return walk(plan, COUNTED, lambda at, _: (jnp.where(tempered[:, at] >= least, 1, 0),))[0]

    walk(plan, TOTAL, temper)
    everything = jnp.full_like(ints[:, 2:3], LOWEST)
    by_count = jax.lax.cond(
        (mode & COUNT) != 0,
        lambda: largest(everything, lambda t: count(_value(t)) >= ints[:, 2:3]),
        lambda: everything,
    )
    by_count = _value(by_count)

    def nucleus():
        enough = top_p * total(by_count)
        # Out is a token if those above it hold enough. The best, key 0, stays: ``_value`` ends there.
        outside = largest(everything, lambda t: total(_value(t + 1)) >= enough)
        return jnp.where(top_p < 1, outside + 1, everything)

    by_mass = _value(jax.lax.cond((mode & MASS) != 0, nucleus, lambda: everything))
    least = jnp.maximum(by_count, by_mass)

    def logit_of_kept(columns, _):
        return (jnp.where(tempered[:, columns] >= least, logits[:, columns], jnp.inf),)

    wanted = (ints[:, 3:4] & (COUNT | MASS)) != 0
    return jnp.where(wanted, walk(plan, MINIMUM, logit_of_kept)[0], -jnp.inf)


def _value(key):
    """The float of a key of ``reference.order``; minus infinity of lower ones, zero of positive ones."""
    key = jnp.maximum(key, LOWEST)
    return jax.lax.bitcast_convert_type(jnp.where(key < 0, key ^ jnp.int32(0x7FFFFFFF), 0), jnp.float32)
