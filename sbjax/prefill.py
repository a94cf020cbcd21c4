"""Reads the prompts into a cache, chunk by chunk: one compilation for every prompt length."""

import functools

import jax
import jax.numpy as jnp

from sbjax.cache import KVCache
from sbjax.language_model import LanguageModel, Params


@functools.partial(jax.jit, static_argnames=("model", "chunk"), donate_argnames=("cache",))
def prefill(
    model: LanguageModel, params: Params, cache: KVCache, text: jax.Array, length: jax.Array, *, chunk: int
) -> KVCache:
    """Processes all but the last token of every row; the last one stays pending.

    Args:
      model: the model, static.
      params: its parameters.
      cache: an empty cache ``[B, S]``, donated.
      text: ``[B, S]`` int32.
      length: ``[B]`` int32, tokens of every row.
      chunk: tokens a forward, static.

    Returns:
      The cache with length ``length - 1``.
    """
    wanted = length - 1
    chunks = (jnp.max(wanted) + chunk - 1) // chunk

    def step(i, cache: KVCache) -> KVCache:
        place = i * chunk + jnp.arange(chunk, dtype=jnp.int32)
        positions = jnp.broadcast_to(place, (text.shape[0], chunk))
        tokens = jnp.take(text, jnp.minimum(place, text.shape[1] - 1), axis=1)
        start = jnp.full(text.shape[0], i * chunk, jnp.int32)
        return model.forward(params, tokens, positions, cache.with_length(start)).cache

    return jax.lax.fori_loop(0, chunks, step, cache).with_length(wanted)
