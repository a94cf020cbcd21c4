"""Attention over a long prefix and own tokens on TPU: one pass over the prefix for all queries of a row.

The grid walks rows, key/value heads and blocks of prefix slots. All queries that share a head (its group,
times the tokens or branches) stand side by side, so a block is read once whatever their number. Blocks that
no query of the row sees are neither read nor computed with. The softmax is carried along (online), and the
own tokens, which are few, join it in the last step. Heads whose width is no multiple of 128 lie with their
slots on lanes, see ``tpu.slots_last``.

Counted for one row and layer, with ``P`` visible prefix slots, ``R = N / M * T`` queries a head and ``c``
bytes a number: ``2 * c * M * H * (P + W)`` bytes of keys and values and ``2 * c * N * T * H`` of queries and
results are moved, ``4 * N * T * H * (P + W)`` operations done. For Llama-3.1-8B (M = 8, H = 128, bfloat16)
that is 4 KiB a slot, so the floor of P = 8192 is 41 us on v5e (819 GB/s), 20 us on v6e (1640 GB/s) and 7 us
on an H200 (4.8 TB/s); with T = 8 the products take 5.5, 1.2 and 1.4 us (197, 918, 790 Tflop/s), so that the
bytes decide everywhere.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels_pallas import tpu, tuning
from kernels_pallas.branch_attention import reference
from kernels_pallas.branch_attention.mosaic_tpu_kernel import kernel, touched

MAX_QUERIES = 1024
"""Queries a head: past that, scores of a block no longer fit beside the rest, and products decide."""


@dataclasses.dataclass(frozen=True)
class Blocks:
    """Shapes that change the speed and nothing else.

    Attributes:
      slots: prefix slots a step, a multiple of 128.
    """

    slots: int = 512


def refusal(query, prefix_keys, keys) -> str | None:
    """Says why this version does not apply to arrays of these shapes; None if it does."""
    dtypes = {query.dtype, prefix_keys.dtype, keys.dtype}
    if len(dtypes) > 1 or query.dtype not in (jnp.float32, jnp.bfloat16):
        return f"it needs one dtype, float32 or bfloat16, got {', '.join(sorted(map(str, dtypes)))}"
    queries = query.shape[1] * query.shape[2] // keys.shape[1]
    if queries > MAX_QUERIES:
        return f"{queries} queries a key/value head are more than {MAX_QUERIES}"
    if prefix_keys.shape[2] % tpu.LANES:
        return f"{prefix_keys.shape[2]} prefix slots are no multiple of {tpu.LANES}"
    return None


def attention(
    query: jax.Array,
    prefix_keys: jax.Array,
    prefix_values: jax.Array,
    start: jax.Array | None,
    end: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    visible: jax.Array,
    *,
    scale: float,
    softcap: float | None = None,
    blocks: Blocks | None = None,
    interpret: tpu.Interpret = False,
) -> jax.Array:
    """See ``reference.attention``; slots before the first and behind the last that some query of a row sees
    may hold anything, NaN included.

    Args:
      query: ``[B, T, N, H]``, float32 or bfloat16 like all the others.
      prefix_keys: ``[B, M, S, H]``, ``S`` a multiple of 128.
      prefix_values: ``[B, M, S, H]``.
      start: ``[B, T]`` int32 or None.
      end: ``[B, T]`` int32.
      keys: ``[B, M, W, H]``.
      values: ``[B, M, W, H]``.
      visible: ``[B, T, W]`` bool.
      scale: what the dot products are multiplied by.
      softcap: bound of the scores.
      blocks: shapes of the blocks; None takes those of ``tuning``, else a safe default.
      interpret: see ``tpu.Interpret``.

    Returns:
      ``[B, T, N, H]`` in the dtype of ``query``.

    Raises:
      ValueError: if this version does not apply.
    """
    if reason := refusal(query, prefix_keys, keys):
        raise ValueError(f"branch_attention for tpu: {reason}")
    (_, t, n, h), (_, m, slots, _) = query.shape, prefix_keys.shape
    start = jnp.zeros_like(end) if start is None else start
    start, end = jnp.maximum(start, 0), jnp.minimum(end, slots)
    bounds = _by_query(jnp.stack([start, end], -1), n // m)
    grouped = reference.grouped(query, m)
    rows, own = grouped.shape[2], _padded(keys.shape[2], tpu.LANES)
    padded = _padded(rows, 8 * 4 // query.dtype.itemsize)
    shape = tuning.shape_key(query.dtype, queries=padded, own=own, h=h, s=slots)
    blocks = blocks or Blocks(**tuning.block_shapes("branch_attention/tpu", shape) or {})
    step = _dividing(blocks.slots, slots)
    grouped = _pad(grouped, 2, padded)
    mask = _pad(_pad(_by_query(visible.astype(jnp.int32), n // m), 1, padded), 2, own)
    bounds = _pad(bounds, 1, padded)
    new = [_pad(x, 2, own) for x in (keys, values)]
    prefix = [jnp.swapaxes(x, 2, 3) if tpu.slots_last(h) else x for x in (prefix_keys, prefix_values)]
    call = _call(grouped, slots, own, step, scale, softcap, interpret)
    reach = jnp.stack([start.min(1), end.max(1)])
    out = call(reach, grouped, *prefix, *new, bounds, mask)[:, :, :rows]
    return reference.ungrouped(out, t)


def _dividing(wanted: int, slots: int) -> int:
    """The largest multiple of 128 up to ``wanted`` that divides ``slots``."""
    return max(size for size in range(tpu.LANES, max(wanted, tpu.LANES) + 1, tpu.LANES) if slots % size == 0)


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _pad(x: jax.Array, axis: int, size: int) -> jax.Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return jnp.pad(x, widths)


def _by_query(x: jax.Array, group: int) -> jax.Array:
    """``[B, T, n]`` to ``[B, N / M * T, n]``, in the order of the grouped queries."""
    b, t, n = x.shape
    return jnp.broadcast_to(x[:, None], (b, group, t, n)).reshape(b, group * t, n)


def _call(grouped, slots: int, own: int, step: int, scale, softcap, interpret):
    """The ``pallas_call`` for arrays of these shapes."""
    (b, m, rows, h), dtype = grouped.shape, grouped.dtype
    last = tpu.slots_last(h)

    def block(row, head, i, reach):
        # A block outside the reach repeats one inside, so that nothing is read for it.
        first, past = touched(reach, row, step)
        inside = jnp.clip(i, first, jnp.maximum(past - 1, first))
        index = jnp.minimum(inside, slots // step - 1)
        return (row, head, 0, index) if last else (row, head, index, 0)

    by_head = lambda row, head, i, reach: (row, head, 0, 0)  # noqa: E731
    by_row = lambda row, head, i, reach: (row, 0, 0)  # noqa: E731
    prefix = pl.BlockSpec((1, 1, h, step) if last else (1, 1, step, h), block)
    cost = 4 * b * m * rows * h * (slots + own)
    return pl.pallas_call(
        functools.partial(kernel, step=step, last=last, scale=scale, softcap=softcap),
        grid_spec=tpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(b, m, slots // step),
            in_specs=[
                pl.BlockSpec((1, 1, rows, h), by_head),
                prefix,
                prefix,
                pl.BlockSpec((1, 1, own, h), by_head),
                pl.BlockSpec((1, 1, own, h), by_head),
                pl.BlockSpec((1, rows, 2), by_row),
                pl.BlockSpec((1, rows, own), by_row),
            ],
            out_specs=pl.BlockSpec((1, 1, rows, h), by_head),
            scratch_shapes=[
                tpu.VMEM((rows, tpu.LANES), jnp.float32),
                tpu.VMEM((rows, tpu.LANES), jnp.float32),
                tpu.VMEM((rows, h), jnp.float32),
            ],
        ),
        out_shape=jax.ShapeDtypeStruct((b, m, rows, h), dtype),
        compiler_params=tpu.compiler_params("parallel", "parallel", "arbitrary"),
        cost_estimate=pl.CostEstimate(
            flops=cost,
            transcendentals=b * m * rows * (slots + own),
            bytes_accessed=2 * dtype.itemsize * b * m * h * (slots + own + rows),
        ),
        interpret=interpret,
        name="branch_attention",
    )
