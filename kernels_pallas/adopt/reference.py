"""New keys or values into a cache behind each row's text: the specification, in plain jax.numpy.

Axes: ``B`` rows, ``M`` key/value heads, ``S`` cache slots, ``T`` new tokens, ``H`` head width.
"""

import jax
import jax.numpy as jnp


def adopt(
    keys: jax.Array, values: jax.Array, new_keys: jax.Array, new_values: jax.Array, start: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Writes new tokens at ``start[b] + t``; those past the end of the buffer are dropped.

    Args:
      keys: ``[B, M, S, H]``.
      values: ``[B, M, S, H]``.
      new_keys: ``[B, M, T, H]``, of the dtype of ``keys``.
      new_values: ``[B, M, T, H]``.
      start: ``[B]`` int32, not negative. It has to depend on everything that read the buffers, otherwise
        XLA copies them (see ``sbjax.cache.after``).

    Returns:
      The two buffers, written in place where they are donated.
    """

    def row(buffer, new, start):
        slots = start + jnp.arange(new.shape[1], dtype=jnp.int32)
        return buffer.at[:, slots].set(new, mode="drop", unique_indices=True)

    write = jax.vmap(row)
    return write(keys, new_keys, start), write(values, new_values, start)
