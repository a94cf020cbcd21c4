"""Attention of new tokens, or of branches, over a shared prefix."""

import functools

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from kernels_pallas.branch_attention import folding, mosaic_gpu, mosaic_tpu, reference
from kernels_pallas.dispatch import Version, differentiable, dispatch
from kernels_pallas.partitioning import partitioned

__all__ = ["attention"]


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
    implementation: str | None = None,
) -> jax.Array:
    """Softmax attention with grouped heads over the visible part of a prefix and own tokens.

    Under ``vmap`` over branches that share a prefix, the branches become more queries of one call, so that
    the prefix is read once for all of them.

    Args:
      query: ``[B, T, N, H]``.
      prefix_keys: ``[B, M, S, H]``; ``M`` divides ``N``.
      prefix_values: ``[B, M, S, H]``; finite in dead slots too, whatever is in them.
      start: ``[B, T]`` int32, the first prefix slot that a query sees; None is 0 everywhere.
      end: ``[B, T]`` int32, one past the last slot that it sees.
      keys: ``[B, M, W, H]``, of the new tokens and of what else is not in the prefix.
      values: ``[B, M, W, H]``, finite.
      visible: ``[B, T, W]`` bool, which of them a query sees; every query sees at least one token or slot.
      scale: what the dot products are multiplied by.
      softcap: if set, scores become ``softcap * tanh(score / softcap)``.
      implementation: "reference", "tpu", "gpu", or None, which takes what suits platform and shapes.

    Returns:
      ``[B, T, N, H]`` in the dtype of ``query``; scores and softmax are float32.

    Raises:
      ValueError: if the implementation is unknown or does not apply.
    """
    run = _attention(float(scale), softcap, implementation)
    return run(query, prefix_keys, prefix_values, start, end, keys, values, visible)


@functools.cache
def _attention(scale: float, softcap: float | None, implementation: str | None):
    """The operation with its settings bound; jit, so that equal layers are traced once."""
    plain = functools.partial(reference.attention, scale=scale, softcap=softcap)
    settings = {"scale": scale, "softcap": softcap}
    on_tpu, on_gpu = (functools.partial(x.attention, **settings) for x in (mosaic_tpu, mosaic_gpu))
    versions = {
        "tpu": Version(functools.partial(_partitioned, on_tpu), _refusal(mosaic_tpu)),
        "gpu": Version(functools.partial(_partitioned, on_gpu), _refusal(mosaic_gpu), trusted=False),
    }

    @custom_vmap
    def run(*args):
        return dispatch("branch_attention", plain, versions, implementation, *args)

    @run.def_vmap
    def over_branches(branches, mapped, *args):
        axes = jax.tree.map(lambda is_mapped: 0 if is_mapped else None, mapped)
        folds = {
            name: Version(folding.folded(version.run, axes), folding.folded(version.refusal, axes, bare=True))
            for name, version in versions.items()
        }
        out = dispatch("branch_attention", jax.vmap(plain, axes), folds, implementation, *args)
        return out, True

    return jax.jit(differentiable(run, plain))


def _partitioned(call, query, prefix_keys, prefix_values, start, *rest) -> jax.Array:
    """Rows and heads may lie on several devices."""
    start = jnp.zeros_like(rest[0]) if start is None else start
    kinds = ("b.n.", "bm..", "bm..", "b.", "b.", "bm..", "bm..", "b..")
    return partitioned(call, kinds, ("b.n.",))(query, prefix_keys, prefix_values, start, *rest)


def _refusal(backend):
    """The backend's reasons, as a function of all arguments."""

    def refusal(query, prefix_keys, prefix_values, start, end, keys, values, visible) -> str | None:
        return backend.refusal(query, prefix_keys, keys)

    return refusal
