"""New tokens beside a shared prefix: a small suffix of keys and values, and its way into the prefix.

The prefix is only read, so it can be shared by branches under ``vmap`` and by programs of different
widths under ``lax.switch`` without a copy. ``adopt`` then writes what stays into the prefix.

Axes: ``W`` slots of a suffix; the others as in ``language_model``.
"""

import chex
import jax
import jax.numpy as jnp

from kernels_pallas import adopt as kernel
from kernels_pallas.branch_attention import attention
from sbjax.cache import KVCache, causal_mask, finite, new_visible, text_start
from sbjax.indexing import take


@chex.dataclass(frozen=True, mappable_dataclass=False)
class SuffixCache:
    """What a model sees that must not write into the prefix.

    Attributes:
      prefix: the shared cache; its length is not looked at.
      visible: ``[B]`` int32, how many slots of the prefix are seen; the suffix starts at that position.
      keys: ``L`` buffers ``[B, M, W, H]``; empty if the suffix is to be whatever one forward adds.
      values: likewise.
      length: ``[B]`` int32, tokens in the suffix.
    """

    prefix: KVCache
    visible: jax.Array
    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    length: jax.Array

    @classmethod
    def of_one_forward(cls, prefix: KVCache, visible: jax.Array) -> "SuffixCache":
        """A suffix that will hold the tokens of a single forward, at any positions."""
        return cls(prefix=prefix, visible=visible, keys=(), values=(), length=jnp.zeros_like(visible))

    def attend(
        self, layer, query, key, value, positions, mask=None, *, scale, window=None, softcap=None
    ) -> tuple[jax.Array, "SuffixCache"]:
        """Attends over prefix, suffix and the new tokens, which join the suffix; see ``KVCache.attend``."""
        rows, tokens = positions.shape
        dtype = self.prefix.keys[layer].dtype
        key, value = (finite(jnp.swapaxes(new, 1, 2), dtype) for new in (key, value))
        mask = jnp.broadcast_to(causal_mask(tokens) if mask is None else mask, (rows, tokens, tokens))
        if len(self.keys) > layer:
            # A suffix is small and mapped over branches: nothing a kernel would gain anything on.
            keys, values = kernel.adopt(
                self.keys[layer], self.values[layer], key, value, self.length, implementation="reference"
            )
            visible = self._suffix_visible(mask, positions, keys.shape[2], window)
        else:
            keys, values, visible = key, value, new_visible(mask, positions, window)
        out = attention(
            query,
            self.prefix.keys[layer],
            self.prefix.values[layer],
            text_start(positions, window),
            jnp.broadcast_to(self.visible[:, None], positions.shape),
            keys,
            values,
            visible,
            scale=scale,
            softcap=softcap,
        )
        return out, self.replace(
            keys=(*self.keys[:layer], keys, *self.keys[layer + 1 :]),
            values=(*self.values[:layer], values, *self.values[layer + 1 :]),
        )

    def _suffix_visible(self, mask, positions, slots: int, window: int | None) -> jax.Array:
        """``[B, T, W]``: older tokens of the suffix, and the new ones by ``mask``."""
        tokens = positions.shape[1]
        slot = jnp.arange(slots, dtype=jnp.int32)[None]
        place = slot - self.length[:, None]
        new = jax.vmap(lambda seen, i: seen.at[:, i].get(mode="fill", fill_value=False))(
            mask, jnp.where(place < 0, tokens, place)
        )
        visible = new | (place < 0)[:, None]
        if window is None:
            return visible
        behind = positions[:, :, None] - (self.visible[:, None] + slot)[:, None]
        return visible & (behind < window)


def adopt(prefix: KVCache, suffix: SuffixCache, start: jax.Array, slots: jax.Array | None = None) -> KVCache:
    """Writes tokens of a suffix into the prefix; the prefix's length stays.

    Args:
      prefix: the cache that the suffix was made beside.
      suffix: keys and values ``[B, M, W, H]``.
      start: ``[B]`` int32, the prefix slot of the first token. It has to depend on everything that read
        the prefix (see ``cache.after``), otherwise XLA copies every buffer.
      slots: ``[B, n]`` int32, which slots of the suffix to write one after the other; None is all.

    Returns:
      The prefix with the tokens at ``start``; those past its end are dropped.
    """

    def chosen(new):
        return new if slots is None else jnp.swapaxes(take(jnp.swapaxes(new, 1, 2), slots), 1, 2)

    buffers = zip(prefix.keys, prefix.values, suffix.keys, suffix.values, strict=True)
    layers = [kernel.adopt(k, v, chosen(new_k), chosen(new_v), start) for k, v, new_k, new_v in buffers]
    return prefix.replace(keys=tuple(k for k, _ in layers), values=tuple(v for _, v in layers))
