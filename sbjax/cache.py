"""The fixed-shape key/value cache: allocated once, written behind a length, rolled back by a number.

Slots at or past ``length`` are garbage by contract: they are masked, never read, and overwritten by
the next write. The layout ``[B, M, S, H]`` is private to this file and the kernels (a Pallas TPU
kernel needs the slots next to the head width).
"""

import chex
import jax
import jax.numpy as jnp

from kernels_pallas.adopt import adopt
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
    def create(cls, spec: CacheSpec, rows: int, slots: int, sharding=None) -> "KVCache":
        """Allocates an empty cache of ``rows`` rows and ``slots`` slots, with buffers of ``sharding``."""
        shape = (rows, spec.kv_heads, slots, spec.head_dim)

        def buffers() -> tuple[jax.Array, ...]:
            return tuple(jnp.zeros(shape, spec.dtype, device=sharding) for _ in range(spec.layers))

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
        """Attends over the text and the new tokens, and writes the new keys and values behind the text.

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
        rows, tokens = positions.shape
        key, value = (finite(jnp.swapaxes(new, 1, 2), self.keys[layer].dtype) for new in (key, value))
        mask = jnp.broadcast_to(causal_mask(tokens) if mask is None else mask, (rows, tokens, tokens))
        out = attention(
            query,
            self.keys[layer],
            self.values[layer],
            text_start(positions, window),
            jnp.broadcast_to(self.length[:, None], positions.shape),
            key,
            value,
            new_visible(mask, positions, window),
            scale=scale,
            softcap=softcap,
        )
        keys, values = adopt(self.keys[layer], self.values[layer], key, value, after(self.length, out))
        cache = self.replace(
            keys=(*self.keys[:layer], keys, *self.keys[layer + 1 :]),
            values=(*self.values[:layer], values, *self.values[layer + 1 :]),
        )
        return out, cache


def text_start(positions: jax.Array, window: int | None) -> jax.Array | None:
    """``[B, T]``: the first committed slot that each new token sees; slot = position there."""
    return None if window is None else jnp.maximum(positions - (window - 1), 0)


def new_visible(mask: jax.Array, positions: jax.Array, window: int | None) -> jax.Array:
    """``[B, T, T]``: the new tokens that each new token sees."""
    return mask if window is None else mask & (positions[:, :, None] - positions[:, None] < window)


def finite(new: jax.Array, dtype) -> jax.Array:
    """What goes into the cache is finite, so that a dead slot of weight zero adds zero.

    A token whose states are not finite still shows it in its own logits.
    """
    return jnp.where(jnp.isfinite(new), new, jnp.zeros((), new.dtype)).astype(dtype)


def after(offset: jax.Array, *results: jax.Array) -> jax.Array:
    """The same offset ``[B]``, in XLA's eyes computed from ``results``, arrays ``[B, ...]``.

    XLA orders a read and an in-place write of one buffer by data alone; without this edge it copies every
    buffer of the cache twice a step.
    """
    for result in results:
        first = result.reshape(result.shape[0], -1)[:, 0]
        never = first != first if jnp.issubdtype(first.dtype, jnp.floating) else first < -1
        offset = jnp.minimum(offset, offset + never.astype(jnp.int32))
    return offset
