"""Fakes with known laws: language models given by tables, run through the real cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from sbjax.language_model import CacheSpec, Forward


@dataclasses.dataclass(frozen=True)
class TableModel:
    """A language model whose next-token logits are a table over the last ``order`` tokens.

    The older tokens are fetched from the cache by attention: keys are one-hot positions, values
    one-hot tokens, so a wrong cache, position or rollback gives wrong rows.

    Attributes:
      vocab_size: ``V``.
      order: 1 or 2 tokens of context.
      max_length: positions that the one-hot keys can tell apart.
    """

    vocab_size: int
    order: int = 2
    max_length: int = 64

    @property
    def cache_spec(self) -> CacheSpec:
        """One layer with one head, wide enough for a position and a token."""
        return CacheSpec(layers=1, kv_heads=1, head_dim=max(self.max_length, self.vocab_size))

    def init(self, seed: int, scale: float = 1.0) -> dict[str, jax.Array]:
        """Random logits ``{"table": [V, V, V]}``, indexed by the last token but one, the last, the next."""
        shape = (self.vocab_size,) * 3
        table = np.random.default_rng(seed).normal(size=shape) * scale
        if self.order == 1:
            table = np.broadcast_to(table[:1], shape)
        return {"table": jnp.asarray(table, jnp.float32)}

    def forward(self, params, tokens, positions, cache, mask=None, *, features=0) -> Forward:
        """See ``LanguageModel.forward``. Position 0 has token 0 before it."""
        del params
        width = self.cache_spec.head_dim
        key = jax.nn.one_hot(positions, width, dtype=jnp.float32)[:, :, None]
        value = jax.nn.one_hot(tokens, width, dtype=jnp.float32)[:, :, None]
        query = jax.nn.one_hot(positions - 1, width, dtype=jnp.float32)[:, :, None]
        found, cache = cache.attend(0, query, key, value, positions, mask, scale=1e4)
        before = jnp.where(positions == 0, 0, jnp.argmax(found[:, :, 0], -1).astype(jnp.int32))
        hidden = jnp.stack([before, tokens], -1).astype(jnp.float32)
        return Forward(hidden, hidden[:, :, None] if features else None, cache)

    def logits(self, params, hidden) -> jax.Array:
        """Looks the rows up."""
        index = hidden.astype(jnp.int32)
        return params["table"][index[..., 0], index[..., 1]]

    def embed(self, params, tokens) -> jax.Array:
        """``[..., 2]``: the state of the token at position 0."""
        del params
        return jnp.stack([jnp.zeros_like(tokens), tokens], -1).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class ScriptModel(TableModel):
    """A language model that says a fixed text by position, whatever the text before is.

    It keeps the cache of a ``TableModel`` without looking at it, so a draft can be made to be right
    for exactly as many tokens as a test wants. Parameters are ``{"script": [max_length] int32}``, the
    token wanted at every position.
    """

    def forward(self, params, tokens, positions, cache, mask=None, *, features=0) -> Forward:
        """See ``LanguageModel.forward``."""
        cache = super().forward(params, tokens, positions, cache, mask).cache
        hidden = positions[..., None].astype(jnp.float32)
        return Forward(hidden, hidden[:, :, None] if features else None, cache)

    def logits(self, params, hidden) -> jax.Array:
        """Favours the next token of the script by 10."""
        place = jnp.minimum(hidden[..., 0].astype(jnp.int32) + 1, self.max_length - 1)
        return 10 * jax.nn.one_hot(params["script"][place], self.vocab_size, dtype=jnp.float32)

    def embed(self, params, tokens) -> jax.Array:
        """``[..., 1]``: the token."""
        del params
        return tokens[..., None].astype(jnp.float32)
