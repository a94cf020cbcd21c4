"""Attention of a few new tokens over a long prefix and themselves, for Hopper GPUs.

A program takes the queries of one key/value head, 64 at a time, and a share of the prefix slots that they
see (flash decoding): blocks of keys and values are copied to shared memory ahead of their use, met by the
tensor cores, and folded into a running maximum, sum and mixture in registers. The shares, and the part over
the own tokens, are merged in plain jax.numpy. Blocks that no query sees are not read. In the blocks at the
ends of what is seen, values of slots that no query sees are set to zero, so whatever is in them is lost.

Cost, per row and key/value head, with ``n`` slots seen by ``R = T N / M`` queries: ``4 n H`` bytes of keys
and values, ``2 R H`` of queries, ``4 R H`` written and read again for every share; ``256 n H`` operations for
every 64 queries, padding included. Up to 64 queries that is 64 operations a byte, and an H200 does 165 (790
TFLOP/s of bfloat16, 4.8 TB/s), so the bytes are the floor: 8 rows of 8,192 slots and 8 heads of 128 are 268
MB, 56 us, while the operations would take 22 us. More queries read the prefix once for every 64 of them, from
the second time on from the cache of the GPU where it fits. Compiled for sm_90 by jax 0.10.2, a thread takes
148 registers at width 64 and 215 at 128; at 256 there are not enough, and 0.6 kB of each are spilled.
Axes: as in ``reference``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels_pallas import gpu, tuning
from kernels_pallas.branch_attention import reference
from kernels_pallas.branch_attention.mosaic_gpu_kernel import QUERIES, kernel, part

PROGRAMS = 264
"""Programs to aim at: two for each of the 132 processors."""

WIDEST = 128
"""The widest head that may be computed at once."""


class Blocks(NamedTuple):
    """How the work is cut.

    Attributes:
      slots: prefix slots of a block, 64 or 128; it divides ``S``.
      splits: shares of a row's slots; None makes about ``PROGRAMS`` programs.
      stages: blocks in shared memory at once, two or more.
    """

    slots: int = 64
    splits: int | None = None
    stages: int = 2


def refusal(
    query: jax.Array, prefix_keys: jax.Array, keys: jax.Array, blocks: Blocks | None = None
) -> str | None:
    """Why this version does not apply, in a sentence; None if it does.

    Args:
      query: ``[B, T, N, H]``; only shapes and dtypes are looked at.
      prefix_keys: ``[B, M, S, H]``.
      keys: ``[B, M, W, H]``.
      blocks: how the work is cut.
    """
    blocks = blocks or Blocks()
    width, slots = query.shape[3], prefix_keys.shape[2]
    if query.dtype not in (jnp.bfloat16, jnp.float16):
        return f"the tensor cores take bfloat16 and float16, queries are {query.dtype}"
    if not query.dtype == prefix_keys.dtype == keys.dtype:
        return f"it needs one dtype, got {query.dtype}, {prefix_keys.dtype} and {keys.dtype}"
    if width % 16 or not (16 <= width <= WIDEST or width == 2 * WIDEST):
        return f"it takes heads of a multiple of 16 up to {WIDEST}, or of {2 * WIDEST}, not of {width}"
    if blocks.slots not in (64, 128) or blocks.stages < 2:
        return f"blocks are of 64 or 128 slots in two stages or more, not {blocks}"
    if slots == 0 or slots % blocks.slots:
        return f"{slots} prefix slots are no multiple of {blocks.slots}"
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
    interpret: gpu.Interpret = False,
) -> jax.Array:
    """See ``reference.attention``; slots before the first and behind the last that some query of a row sees
    may hold anything, NaN included.

    Args:
      query: ``[B, T, N, H]``, bfloat16 or float16 like all the others.
      prefix_keys: ``[B, M, S, H]``.
      prefix_values: ``[B, M, S, H]``.
      start: ``[B, T]`` int32 or None.
      end: ``[B, T]`` int32.
      keys: ``[B, M, W, H]``.
      values: ``[B, M, W, H]``.
      visible: ``[B, T, W]`` bool.
      scale: what the dot products are multiplied by.
      softcap: bound of the scores.
      blocks: how the work is cut; None takes that of ``tuning``, else the default of ``Blocks``.
      interpret: see ``gpu.Interpret``.

    Returns:
      ``[B, T, N, H]`` in the dtype of ``query``.

    Raises:
      ValueError: if this version does not apply.
    """
    (_, t, n, h), m = query.shape, keys.shape[1]
    if blocks is None:
        queries = -(-t * n // m // QUERIES) * QUERIES
        shape = tuning.shape_key(query.dtype, queries=queries, h=h, s=prefix_keys.shape[2])
        blocks = Blocks(**tuning.block_shapes("branch_attention/gpu", shape) or {})
    if reason := refusal(query, prefix_keys, keys, blocks):
        raise ValueError(f"branch_attention for gpu: {reason}")
    grouped = reference.grouped(query, m)
    first = jnp.zeros_like(end) if start is None else jnp.maximum(start, 0)
    seen = [jnp.tile(x, (1, n // m)) for x in (first, jnp.minimum(end, prefix_keys.shape[2]))]
    old = _prefix(grouped, prefix_keys, prefix_values, *seen, scale, softcap, blocks, interpret)
    out = _merge(old, reference.scores(grouped, keys, visible, scale, softcap), values)
    return reference.ungrouped(out, t).astype(query.dtype)


def _merge(old, new: jax.Array, values: jax.Array) -> jax.Array:
    """``[B, M, R, H]`` float32 of the shares of ``_prefix`` and the own tokens' scores ``[B, M, R, W]``."""
    mixed, tops, totals = old
    top = jnp.maximum(tops.max(2), new.max(-1))
    share = jnp.exp(tops - top[:, :, None])
    new = jnp.exp(new - top[..., None])
    total = (share * totals).sum(2) + new.sum(-1)
    out = (share[..., None] * mixed).sum(2) + reference.mix(new, values)
    return out / total[..., None]


def _prefix(grouped, keys, values, first, last, scale, softcap, blocks: Blocks, interpret):
    """Of queries ``[B, M, R, H]``, per share, mixtures ``[B, M, splits, R, H]``, maxima and sums, float32."""
    b, m, queries, h = grouped.shape
    tiles = -(-queries // QUERIES)
    splits = blocks.splits or max(1, min(PROGRAMS // (b * m * tiles), keys.shape[2] // blocks.slots))
    spare = tiles * QUERIES - queries
    grouped = jnp.pad(grouped, ((0, 0), (0, 0), (0, spare), (0, 0))).reshape(b, m, tiles, QUERIES, h)
    first, last = (jnp.pad(x, ((0, 0), (0, spare))).reshape(b, tiles, QUERIES) for x in (first, last))
    # Only what some query sees is read; a query that sees nothing must not widen it.
    low = jnp.where(first < last, first, keys.shape[2]).min(-1)
    high = jnp.where(first < last, last, 0).max(-1)
    rows = QUERIES if tiles > 1 else -(-queries // 8) * 8
    shape = b, m, splits, tiles
    out = [jax.ShapeDtypeStruct((*shape, *rest), jnp.float32) for rest in ((rows, h), (QUERIES,), (QUERIES,))]
    ready = (blocks.stages, blocks.slots, h)
    scratch = (
        gpu.tiled((QUERIES, h), grouped.dtype),
        gpu.tiled(ready, keys.dtype),
        gpu.tiled(ready, values.dtype),
        gpu.tiled((QUERIES, part(h)), jnp.float32),
        gpu.Barrier(),
        gpu.Barrier(num_barriers=blocks.stages),
        gpu.Barrier(num_barriers=blocks.stages),
    )
    mixed, top, total = gpu.launch(
        kernel(scale, softcap, interpret),
        (grouped, keys, values, first, last, low, high),
        out,
        scratch,
        {"row": b, "head": m, "split": splits, "tile": tiles},
        cost=pl.CostEstimate(
            flops=256 * b * m * tiles * keys.shape[2] * h,
            transcendentals=64 * b * m * tiles * keys.shape[2],
            bytes_accessed=2 * keys.size * keys.dtype.itemsize,
        ),
        interpret=interpret,
        fast=softcap is None,
    )
    mixed, top, total = (x.reshape(b, m, splits, -1, *x.shape[5:]) for x in (mixed, top, total))
    return mixed[..., :queries, :], top[..., :queries], total[..., :queries]
