"""The program of ``mosaic_gpu``: 64 queries of one key/value head meet a share of the prefix slots."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from kernels_pallas import gpu

QUERIES = 64
"""Queries of a program: the height of a product of one warpgroup."""

PART = 64
"""Columns of the mixture that are computed at once, where they divide it, so that all stays in registers."""


def kernel(scale: float, softcap: float | None, interpret):
    """The program of a share of what 64 queries see."""

    def prefix_attention(
        query,
        keys,
        values,
        first,
        last,
        low,
        high,
        mixed,
        top,
        total,
        q,
        k,
        v,
        staged,
        q_there,
        k_there,
        v_there,
    ):
        row, head, split, tile = (lax.axis_index(name) for name in ("row", "head", "split", "tile"))
        stages, slots, width = k.shape
        low, high = low[row, tile], high[row, tile]
        begin, stop = _share(low, high, slots, split, mixed.shape[2])
        seen = [gpu.load(x, (row, tile), gpu.ROWS, interpret) for x in (first, last)]

        def fetch(block):
            stage, here = lax.rem(block - begin, stages), pl.ds(block * slots, slots)
            gpu.copy_in(keys.at[row, head, here], k.at[stage], k_there.at[stage])
            gpu.copy_in(values.at[row, head, here], v.at[stage], v_there.at[stage])

        def fold(block, state):
            stage, base = lax.rem(block - begin, stages), block * slots
            gpu.wait(k_there.at[stage])
            gpu.wait(v_there.at[stage])
            whole = (low <= base) & (base + slots <= high)
            pl.when(~whole)(lambda: _clear(v.at[stage], low - base, high - base, interpret))
            scores = gpu.product(q, k.at[stage], interpret, transposed=True)
            scores = _mask(_bend(scores, scale, softcap), base, seen, interpret)
            state = _fold(scores, v.at[stage], state, interpret)
            pl.when(block + stages < stop)(lambda: fetch(block + stages))
            return state

        for ahead in range(stages):
            pl.when(begin + ahead < stop)(lambda ahead=ahead: fetch(begin + ahead))
        gpu.copy_in(query.at[row, head, tile], q, q_there)
        gpu.wait(q_there)
        state = lax.fori_loop(begin, stop, fold, _nothing(width, interpret))
        place = row, head, split, tile
        top[place], total[place] = state[0], state[1]
        _write(state[2], staged, mixed.at[place])

    return prefix_attention


def _share(low, high, slots: int, split, splits: int):
    """The first block, and one past the last, of a share of the blocks with slots ``low`` to ``high``."""
    first = lax.div(low, slots)
    count = jnp.maximum(lax.div(high + (slots - 1), slots) - first, 0)
    return first + lax.div(split * count, splits), first + lax.div((split + 1) * count, splits)


def _nothing(width: int, interpret):
    """Maximum, sum and mixture, in parts, of no slots at all."""
    top, total = (
        gpu.laid_out(jnp.full((QUERIES,), x, jnp.float32), gpu.ROWS, interpret) for x in (-jnp.inf, 0)
    )
    columns = part(width)
    zero = [jnp.zeros((QUERIES, columns), jnp.float32) for _ in range(width // columns)]
    return top, total, tuple(gpu.laid_out(x, gpu.MATRIX, interpret) for x in zero)


def part(width: int) -> int:
    """Columns of the mixture that are computed at once."""
    return width if width % PART else PART


def _bend(scores: jax.Array, scale: float, softcap: float | None) -> jax.Array:
    """Scores from dot products."""
    if softcap is None:
        return scores * scale
    return jnp.tanh(scores * (scale / softcap)) * softcap


def _mask(scores: jax.Array, base, seen, interpret) -> jax.Array:
    """Minus infinity for the slots, from ``base`` on, that a query does not see."""
    slot = gpu.iota(scores.shape, 1, gpu.MATRIX, interpret) + base
    first, last = (lax.broadcast_in_dim(x, scores.shape, (0,)) for x in seen)
    return jnp.where((slot >= first) & (slot < last), scores, -jnp.inf)


def _clear(values, low, high, interpret):
    """Sets the values of slots outside ``low`` to ``high`` to zero, in shared memory."""
    for columns in _parts(values):
        slot = gpu.iota(columns.shape, 0, gpu.MATRIX, interpret)
        held = gpu.laid_out(columns[...], gpu.MATRIX, interpret)
        columns[...] = jnp.where((slot >= low) & (slot < high), held, jnp.zeros_like(held))
    gpu.commit()


def _parts(values) -> list:
    """Values ``[slots, H]`` in shared memory, some columns at a time."""
    width = values.shape[1]
    if part(width) == width:
        return [values]
    return [values.at[:, pl.ds(i, part(width))] for i in range(0, width, part(width))]


def _fold(scores: jax.Array, values, state, interpret):
    """Adds a block of scores ``[64, slots]`` and values ``[slots, H]`` to maximum, sum and mixture."""
    top, total, mixed = state
    new = jnp.maximum(top, scores.max(1))
    # Minus infinity, as long as a query has seen nothing, would give NaN.
    safe = jnp.where(new == -jnp.inf, 0.0, new)
    weights = jnp.exp(scores - lax.broadcast_in_dim(safe, scores.shape, (0,)))
    shrink = jnp.exp(top - safe)
    total = total * shrink + weights.sum(1)
    weights = weights.astype(values.dtype)
    folded = []
    for old, columns in zip(mixed, _parts(values), strict=True):
        kept = old * lax.broadcast_in_dim(shrink, old.shape, (0,))
        folded.append(kept + gpu.product(weights, columns, interpret))
    return new, total, tuple(folded)


def _write(mixed, staged, out):
    """Copies the mixture to the GPU's memory, part by part; ``out`` may hold fewer than 64 queries."""
    rows, width = out.shape[0], staged.shape[1]
    for i, columns in enumerate(mixed):
        staged[...] = columns
        gpu.commit()
        gpu.copy_out(staged.at[pl.ds(0, rows)], out.at[:, pl.ds(i * width, width)])
        gpu.wait_out(0)
