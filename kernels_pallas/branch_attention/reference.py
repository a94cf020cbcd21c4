"""Attention of a few new tokens over a long prefix: the specification, in plain jax.numpy.

Axes: ``B`` rows, ``T`` new tokens, ``S`` cache slots, ``N`` query heads, ``M`` key/value heads,
``H`` head width.
"""

import jax
import jax.numpy as jnp


def attention(
    query: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    visible: jax.Array,
    *,
    scale: float,
    softcap: float | None = None,
) -> jax.Array:
    """Softmax attention with grouped heads over the visible slots.

    Dead slots may hold anything, NaN and infinities included: their scores and their values are
    replaced before use.

    Args:
      query: ``[B, T, N, H]``.
      keys: ``[B, M, S, H]``; ``M`` divides ``N``.
      values: ``[B, M, S, H]``.
      visible: ``[B, T, S]`` bool; every query sees at least one slot.
      scale: what the dot products are multiplied by.
      softcap: if set, scores become ``softcap * tanh(score / softcap)``.

    Returns:
      ``[B, T, N, H]`` in the dtype of ``query``; the softmax is computed in float32.
    """
    b, t, n, h = query.shape
    m = keys.shape[1]
    grouped = query.reshape(b, t, m, n // m, h)
    scores = jnp.einsum("btmgh,bmsh->bmgts", grouped, keys, preferred_element_type=jnp.float32) * jnp.float32(
        scale
    )
    if softcap is not None:
        scores = jnp.tanh(scores / softcap) * softcap
    shown = visible[:, None, None]
    scores = jnp.where(shown, scores, -jnp.inf)
    weights = jnp.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    alive = visible.any(1)[:, None, :, None]
    values = jnp.where(alive, values, jnp.zeros((), values.dtype))
    out = jnp.einsum(
        "bmgts,bmsh->btmgh", weights.astype(values.dtype), values, preferred_element_type=jnp.float32
    )
    return out.reshape(b, t, n, h).astype(query.dtype)
