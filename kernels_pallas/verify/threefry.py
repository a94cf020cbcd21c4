"""The noise of ``jax.random.gumbel`` as elementwise arithmetic, for use inside kernels.

An element depends on the key and its index alone (``jax_threefry_partitionable``), so any part of a row of
noise can be made anywhere. Written for int32 and uint32 alike: backends differ in which they have.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TINY = np.finfo(np.float32).tiny
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def gumbel(key: tuple[jax.Array, jax.Array], index: jax.Array) -> jax.Array:
    """Elements ``index`` of the row of noise of a key.

    Args:
      key: both words, of the dtype of ``index``, in shapes that broadcast to it.
      index: int32 or uint32, less than ``2 ** 31``.

    Returns:
      float32 in the shape of ``index``.
    """
    integer = index.dtype.type
    bits = lax.shift_right_logical(_bits(key, index), integer(9)) | integer(0x3F800000)
    # jax scales to [tiny, 1) as x (1 - tiny) + tiny, which changes nothing but zero.
    uniform = jnp.maximum(lax.bitcast_convert_type(bits, jnp.float32) - jnp.float32(1), TINY)
    return -jnp.log(-jnp.log(uniform))


def _bits(key, index: jax.Array) -> jax.Array:
    """Both words of threefry2x32 of the block ``(0, index)``, combined by exclusive or."""
    integer = index.dtype.type
    words = (*key, key[0] ^ key[1] ^ integer(0x1BD11BDA))
    x, y = words[0], index + words[1]
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            x = x + y
            turned = lax.shift_left(y, integer(by)) | lax.shift_right_logical(y, integer(32 - by))
            y = x ^ turned
        x = x + words[(group + 1) % 3]
        y = y + (words[(group + 2) % 3] + integer(group + 1))
    return x ^ y
