"""The fixed-shape key/value cache: allocated once, written behind a length, rolled back by a number.

Slots at or past ``length`` are garbage by contract: they are masked, never read, and overwritten by
the next write. The layout ``[B, M, S, H]`` is private to this file and the kernels (a Pallas TPU
kernel needs the slots next to the head width).
"""

import chex
import jax
import jax.numpy as jnp

from kernels_pallas.branch_attention import attention
from sbjax.language_model import CacheSpec


def causal_mask(tokens: int) -> jax.Array:
    """Returns ``[T, T]`` bool: every new token sees itself and the new tokens before it."""
    return jnp.tril(jnp.ones((tokens, tokens), bool))


@chex.dataclass(frozen=True, mappable_dataclass=False)
class KVCache:
    """The keys and values of committed text, with room behind it.

    Attributes:
      keys: ``L`` buffers ``[B, M, S, H]``.
      values: ``L`` buffers ``[B, M, S, H]``.
      length: ``[B]`` int32, how many slots of each row hold committed text; slot = position there.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    length: jax.Array

    @classmethod
    def create(cls, spec: CacheSpec, rows: int, slots: int) -> "KVCache":
        """Allocates an empty cache of ``rows`` rows and ``slots`` slots."""
        shape = (rows, spec.kv_heads, slots, spec.head_dim)

        def buffers() -> tuple[jax.Array, ...]:
            return tuple(jnp.zeros(shape, spec.dtype) for _ in range(spec.layers))

        return cls(keys=buffers(), values=buffers(), length=jnp.zeros(rows, jnp.int32))

    def with_length(self, length: jax.Array) -> "KVCache":
        """The same cache with another length ``[B]``: this is commit, and this is rollback."""
        return self.replace(length=length.astype(jnp.int32))

    def attend(
        self,
        layer: int,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        positions: jax.Array,
        mask: jax.Array | None = None,
        *,
        scale: float,
        window: int | None = None,
        softcap: float | None = None,
    ) -> tuple[jax.Array, "KVCache"]:
        """Writes the new keys and values behind the text and attends over both.

        A slot past the end of the buffer is dropped, never clamped onto a live one.

        Args:
          layer: index of the layer.
          query: ``[B, T, N, H]``.
          key: ``[B, T, M, H]``.
          value: ``[B, T, M, H]``.
          positions: ``[B, T]`` int32, positions of the new tokens.
          mask: ``[T, T]`` or ``[B, T, T]`` bool among the new tokens; None is causal.
          scale: what the dot products are multiplied by.
          window: if set, a token sees only positions less than ``window`` behind its own.
          softcap: bound of the scores, see ``kernels_pallas.branch_attention``.

        Returns:
          ``[B, T, N, H]`` and the cache with its length unchanged.
        """
        keys = _write(self.keys[layer], key, self.length)
        values = _write(self.values[layer], value, self.length)
        visible = self._visible(positions, mask, window)
        out = attention(query, keys, values, visible, scale=scale, softcap=softcap)
        cache = self.replace(
            keys=(*self.keys[:layer], keys, *self.keys[layer + 1 :]),
            values=(*self.values[:layer], values, *self.values[layer + 1 :]),
        )
        return out, cache

    def _visible(self, positions: jax.Array, mask: jax.Array | None, window: int | None) -> jax.Array:
        """``[B, T, S]``: the text before ``length``, and the new tokens that the mask allows."""
        rows, tokens = positions.shape
        slots = self.keys[0].shape[2]
        mask = causal_mask(tokens) if mask is None else mask
        mask = jnp.broadcast_to(mask, (rows, tokens, tokens))
        return jax.vmap(_visible_row, (0, 0, 0, None, None))(self.length, positions, mask, slots, window)


def _visible_row(length, positions, mask, slots: int, window: int | None) -> jax.Array:
    """One row of ``KVCache._visible``: ``[T, S]``."""
    slot = jnp.arange(slots, dtype=jnp.int32)
    new = slot - length
    index = jnp.clip(new, 0, mask.shape[1] - 1)
    is_new = (new >= 0) & (new < mask.shape[1])
    visible = jnp.where(is_new[None], mask[:, index], (new < 0)[None])
    if window is None:
        return visible
    slot_position = jnp.where(is_new, positions[index], slot)
    return visible & (positions[:, None] - slot_position[None] < window)


def _write(buffer: jax.Array, new: jax.Array, offset: jax.Array) -> jax.Array:
    """Writes ``new [B, T, M, H]`` into ``buffer [B, M, S, H]`` at slots ``offset[b] + t``."""

    def row(buffer_row, new_row, start):
        slots = start + jnp.arange(new_row.shape[0], dtype=jnp.int32)
        return buffer_row.at[:, slots].set(
            jnp.swapaxes(new_row, 0, 1).astype(buffer_row.dtype), mode="drop", unique_indices=True
        )

    return jax.vmap(row)(buffer, new, offset)
