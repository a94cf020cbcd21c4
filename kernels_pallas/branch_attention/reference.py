"""Attention of a few new tokens over a long prefix and themselves: the specification, in plain jax.numpy.

Axes: ``B`` rows, ``T`` new tokens, ``S`` prefix slots, ``W`` own tokens, ``N`` query heads, ``M`` key/value
heads, ``H`` head width.
"""

import jax
import jax.numpy as jnp
from jax import lax


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
) -> jax.Array:
    """Softmax attention with grouped heads over the visible part of prefix and own tokens.

    The two parts are never concatenated: the prefix is read where it lies.

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

    Returns:
      ``[B, T, N, H]`` in the dtype of ``query``; scores and softmax are float32.
    """
    queries = grouped(query, keys.shape[1])
    seen = prefix_visible(start, end, prefix_keys.shape[2])
    old = scores(queries, prefix_keys, seen, scale, softcap)
    new = scores(queries, keys, visible, scale, softcap)
    top = jnp.maximum(old.max(-1, keepdims=True), new.max(-1, keepdims=True))
    old, new = jnp.exp(old - top), jnp.exp(new - top)
    total = old.sum(-1, keepdims=True) + new.sum(-1, keepdims=True)
    out = (mix(old, prefix_values) + mix(new, values)) / total
    return ungrouped(out, query.shape[1]).astype(query.dtype)


def grouped(query: jax.Array, heads: int) -> jax.Array:
    """``[B, T, N, H]`` to ``[B, M, N / M * T, H]``: all queries of a key/value head side by side."""
    b, t, n, h = query.shape
    return query.reshape(b, t, heads, n // heads, h).transpose(0, 2, 3, 1, 4).reshape(b, heads, -1, h)


def ungrouped(out: jax.Array, tokens: int) -> jax.Array:
    """The way back, ``[B, M, N / M * T, H]`` to ``[B, T, N, H]``."""
    b, m, rows, h = out.shape
    split = out.reshape(b, m, rows // tokens, tokens, h)
    return split.transpose(0, 3, 1, 2, 4).reshape(b, tokens, m * (rows // tokens), h)


def prefix_visible(start: jax.Array | None, end: jax.Array, slots: int) -> jax.Array:
    """``[B, T, S]`` bool: the prefix slots that each query sees."""
    slot = jnp.arange(slots, dtype=jnp.int32)[None, None]
    seen = slot < end[:, :, None]
    return seen if start is None else seen & (slot >= start[:, :, None])


def scores(queries, keys, visible, scale: float, softcap: float | None) -> jax.Array:
    """``[B, M, N / M * T, S]`` float32; both operands are contracted over their last axis, as they lie."""
    found = _dot(queries, keys, 3) * jnp.float32(scale)
    if softcap is not None:
        found = jnp.tanh(found / softcap) * softcap
    b, m, rows, s = found.shape
    tokens = visible.shape[1]
    split = found.reshape(b, m, rows // tokens, tokens, s)
    return jnp.where(visible[:, None, None], split, -jnp.inf).reshape(found.shape)


def mix(weights: jax.Array, values: jax.Array) -> jax.Array:
    """``[B, M, N / M * T, H]`` float32, the weighted sum of the values."""
    return _dot(weights.astype(values.dtype), values, 2)


def _dot(left: jax.Array, right: jax.Array, axis: int) -> jax.Array:
    """Contracts the last axis of ``left`` with ``axis`` of ``right``, for every row and head."""
    dimensions = (((3,), (axis,)), ((0, 1), (0, 1)))
    return lax.dot_general(left, right, dimensions, preferred_element_type=jnp.float32)
