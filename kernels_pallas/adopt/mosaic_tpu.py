"""New keys and values into a cache on TPU, in place.

A TPU moves whole tiles of slots, and a text may end anywhere in one. So the grid walks rows and the few
tiles that a row's new tokens touch: a tile is read, the tokens whose slots are in it replace its lines, and
it is written back to where it was. The buffers are the kernel's results (aliased), the rest of them is not
touched. Heads whose width is no multiple of 128 lie with their slots on lanes, see ``tpu.slots_last``.

Counted for one row and layer, with ``T`` new tokens, tiles of ``t`` slots and ``c`` bytes a number:
``4 * c * M * H * t * (1 + ceil((T - 1) / t))`` bytes are moved (keys and values, there and back). For
Llama-3.1-8B (M = 8, H = 128, bfloat16, t = 16) and T = 8 that is 256 KiB: 0.3 us on v5e (819 GB/s), 0.16 us
on v6e (1640 GB/s), 0.05 us on an H200 (4.8 TB/s). What such a kernel really costs are its grid steps, about
0.4 us each.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from kernels_pallas import tpu

MAX_TOKENS = 64
"""More tokens are a prefill, where a plain scatter is as fast."""


def refusal(keys, values, new_keys, new_values, start) -> str | None:
    """Says why this version does not apply to arrays of these shapes; None if it does."""
    del values, new_values, start
    if keys.dtype not in (jnp.float32, jnp.bfloat16):
        return f"it writes float32 and bfloat16, not {keys.dtype}"
    if new_keys.dtype != keys.dtype:
        return f"the new tokens are {new_keys.dtype}, the cache is {keys.dtype}"
    if new_keys.shape[2] > MAX_TOKENS:
        return f"{new_keys.shape[2]} tokens are more than {MAX_TOKENS}"
    if keys.shape[2] % _tile(keys):
        return f"{keys.shape[2]} slots are no multiple of {_tile(keys)}"
    return None


def adopt(
    keys: jax.Array,
    values: jax.Array,
    new_keys: jax.Array,
    new_values: jax.Array,
    start: jax.Array,
    *,
    interpret: tpu.Interpret = False,
) -> tuple[jax.Array, jax.Array]:
    """See ``reference.adopt``.

    Args:
      keys: ``[B, M, S, H]`` float32 or bfloat16; ``S`` a multiple of the tile, at most 128.
      values: ``[B, M, S, H]``.
      new_keys: ``[B, M, T, H]``, at most 64 tokens.
      new_values: ``[B, M, T, H]``.
      start: ``[B]`` int32.
      interpret: see ``tpu.Interpret``.

    Raises:
      ValueError: if this version does not apply.
    """
    if reason := refusal(keys, values, new_keys, new_values, start):
        raise ValueError(f"adopt for tpu: {reason}")
    (b, m, slots, h), tokens = keys.shape, new_keys.shape[2]
    last = tpu.slots_last(h)
    tile = _tile(keys)
    touched = 1 + -(-(tokens - 1) // tile)
    arrays = [jnp.swapaxes(x, 2, 3) if last else x for x in (keys, values, new_keys, new_values)]

    def touch(start, i):
        # Past the end the last tile repeats; it is then written again as it is.
        return jnp.minimum(lax.div(start, jnp.int32(tile)) + i, slots // tile - 1)

    def place(row, i, start):
        index = touch(start[row], i)
        return (row, 0, 0, index) if last else (row, 0, index, 0)

    block = pl.BlockSpec((1, m, h, tile) if last else (1, m, tile, h), place)
    new = pl.BlockSpec((1, *arrays[2].shape[1:]), lambda row, i, start: (row, 0, 0, 0))
    moved = 4 * keys.dtype.itemsize * b * m * h * tile * touched
    keys, values = pl.pallas_call(
        functools.partial(_kernel, touch=touch, tile=tile, axis=2 if last else 1),
        grid_spec=tpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(b, touched),
            in_specs=[block, block, new, new],
            out_specs=[block, block],
        ),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in arrays[:2]],
        input_output_aliases={1: 0, 2: 1},
        compiler_params=tpu.compiler_params("arbitrary", "arbitrary"),
        cost_estimate=pl.CostEstimate(flops=0, transcendentals=0, bytes_accessed=moved),
        interpret=interpret,
        name="adopt",
    )(start, *arrays)
    return (jnp.swapaxes(keys, 2, 3), jnp.swapaxes(values, 2, 3)) if last else (keys, values)


def _tile(keys) -> int:
    """Slots that a TPU moves at least: a line of lanes, or eight rows of 32 bits."""
    return tpu.LANES if tpu.slots_last(keys.shape[3]) else 8 * 4 // keys.dtype.itemsize


def _kernel(start, keys, values, new_keys, new_values, keys_out, values_out, *, touch, tile: int, axis: int):
    """One tile of one row."""
    row, i = pl.program_id(0), pl.program_id(1)
    offset = start[row] - touch(start[row], i) * tile
    for old, new, out in ((keys, new_keys, keys_out), (values, new_values, values_out)):
        out[0] = _merged(old[0], new[0], offset, axis)


def _merged(old: jax.Array, new: jax.Array, offset, axis: int) -> jax.Array:
    """The tile with the tokens at ``offset`` along ``axis``, which may be outside of it."""
    # In 32 bits: a select by a mask of lines is not there for packed bfloat16 on older chips.
    merged, wide = old.astype(jnp.float32), new.astype(jnp.float32)
    line = lax.broadcasted_iota(jnp.int32, old.shape, axis)
    for token in range(new.shape[axis]):
        one = lax.slice_in_dim(wide, token, token + 1, axis=axis)
        merged = jnp.where(line == offset + token, one, merged)
    return merged.astype(old.dtype)
