"""New keys and values into a cache, behind each row's text and in place."""

import functools

import jax

from kernels_pallas.adopt import mosaic_gpu, mosaic_tpu, reference
from kernels_pallas.dispatch import Version, differentiable, dispatch
from kernels_pallas.partitioning import partitioned

__all__ = ["adopt"]

_KINDS = ("bm..", "bm..", "bm..", "bm..", "b")
_VERSIONS = {
    "tpu": Version(partitioned(mosaic_tpu.adopt, _KINDS, _KINDS[:2]), mosaic_tpu.refusal),
    "gpu": Version(partitioned(mosaic_gpu.adopt, _KINDS, _KINDS[:2]), mosaic_gpu.refusal, trusted=False),
}


@functools.partial(jax.jit, static_argnames="implementation")
def adopt(
    keys: jax.Array,
    values: jax.Array,
    new_keys: jax.Array,
    new_values: jax.Array,
    start: jax.Array,
    *,
    implementation: str | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Writes new tokens at ``start[b] + t``; those past the end of the buffers are dropped.

    Args:
      keys: ``[B, M, S, H]``.
      values: ``[B, M, S, H]``.
      new_keys: ``[B, M, T, H]``, of the dtype of ``keys``.
      new_values: ``[B, M, T, H]``.
      start: ``[B]`` int32, not negative. It has to depend on everything that read the buffers, otherwise
        XLA copies them (see ``sbjax.cache.after``).
      implementation: "reference", "tpu", "gpu", or None, which takes what suits platform and shapes.

    Returns:
      The two buffers, written in place where they are donated.

    Raises:
      ValueError: if the implementation is unknown or does not apply.
    """
    run = functools.partial(dispatch, "adopt", reference.adopt, _VERSIONS, implementation)
    return differentiable(run, reference.adopt)(keys, values, new_keys, new_values, start)
