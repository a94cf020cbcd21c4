"""New keys and values into a cache, for Hopper GPUs.

A program copies one token of one row, all heads of it, by the copy engine: from the new tokens to shared
memory and on into the cache, which is changed in place.

Cost, for ``B T`` tokens of ``M H`` elements of ``e`` bytes: ``4 B T M H e`` bytes read and as many written,
no arithmetic. 8 rows of 8 tokens of 8 heads of 128 in bfloat16 are 0.26 MB each way: 0.1 us at the 4.8 TB/s
of an H200, so what is paid is one launch, a few microseconds. Axes: as in ``reference``.
"""

import jax
from jax import lax
from jax.experimental import pallas as pl

from kernels_pallas import gpu


def refusal(keys, values, new_keys, new_values, start) -> str | None:
    """Says why this version does not apply to arrays of these shapes; None if it does."""
    del values, new_values, start
    heads, width = keys.shape[1], keys.shape[3]
    if new_keys.dtype != keys.dtype:
        return f"the new tokens are {new_keys.dtype}, the cache is {keys.dtype}"
    if width * keys.dtype.itemsize % 16:
        return f"heads of {width} {keys.dtype} are not whole pieces of 16 bytes"
    if heads * width * keys.dtype.itemsize % 128:
        return f"{heads} heads of {width} {keys.dtype} are no multiple of 128 bytes"
    if width > 256 or heads > 256:
        return f"one copy moves 256 along an axis at most, not {heads} heads of width {width}"
    if new_keys.size == 0:
        return "there are no new tokens"
    return None


def adopt(
    keys: jax.Array,
    values: jax.Array,
    new_keys: jax.Array,
    new_values: jax.Array,
    start: jax.Array,
    *,
    interpret: gpu.Interpret = False,
) -> tuple[jax.Array, jax.Array]:
    """See ``reference.adopt``.

    Args:
      keys: ``[B, M, S, H]``.
      values: ``[B, M, S, H]``.
      new_keys: ``[B, M, T, H]``.
      new_values: ``[B, M, T, H]``.
      start: ``[B]`` int32.
      interpret: see ``gpu.Interpret``.

    Raises:
      ValueError: if this version does not apply.
    """
    if reason := refusal(keys, values, new_keys, new_values, start):
        raise ValueError(f"adopt for gpu: {reason}")
    rows, heads, tokens, width = new_keys.shape
    staged = gpu.shared((heads, width), keys.dtype)
    buffers = gpu.buffer(keys), gpu.buffer(values)
    gpu.launch(
        _adopt,
        (*buffers, new_keys, new_values, start),
        (),
        (staged, staged, gpu.Barrier(num_barriers=2)),
        {"row": rows, "token": tokens},
        cost=pl.CostEstimate(flops=0, transcendentals=0, bytes_accessed=4 * new_keys.nbytes),
        interpret=interpret,
    )
    return tuple(map(jax.freeze, buffers))


def _adopt(keys, values, new_keys, new_values, start, key, value, arrived):
    row, token = lax.axis_index("row"), lax.axis_index("token")
    slot = start[row] + token

    @pl.when(slot < keys.shape[2])
    def _():
        gpu.copy_in(new_keys.at[row, :, token], key, arrived.at[0])
        gpu.copy_in(new_values.at[row, :, token], value, arrived.at[1])
        gpu.wait(arrived.at[0])
        gpu.copy_out(key, keys.at[row, :, slot])
        gpu.wait(arrived.at[1])
        gpu.copy_out(value, values.at[row, :, slot])
        gpu.wait_out(0)
