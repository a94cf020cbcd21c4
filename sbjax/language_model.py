"""What the engine needs of a language model: two pure functions and the shape of its cache.

Axes (the legend of the whole project): ``B`` rows (sequences), ``K`` branches, ``G`` draft length,
``T`` tokens in one forward, ``S`` cache slots, ``V`` vocabulary, ``L`` layers, ``N`` query heads,
``M`` key/value heads, ``H`` head width, ``D`` model width.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax

Params = Any
"""A model's parameters: for models of this package a plain nested dict of arrays."""


class Forward(NamedTuple):
    """What one forward pass returns.

    Attributes:
      hidden: ``[B, T, D]``, the states that ``logits`` turns into rows of scores.
      features: ``[B, T, F, D]``, hidden states of the last ``F`` layers, or None if none were asked for.
      cache: the cache with the new keys and values written behind its length; the length itself is
        unchanged, since only the caller knows how many of the new tokens stay.
    """

    hidden: jax.Array
    features: jax.Array | None
    cache: Any


@dataclasses.dataclass(frozen=True)
class CacheSpec:
    """The shape of a model's cache: per layer one key and one value buffer ``[B, M, S, H]``.

    Attributes:
      layers: ``L``. Zero is allowed: a model that keeps nothing.
      kv_heads: ``M``.
      head_dim: ``H``.
      dtype: name of the dtype of the buffers.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: str = "float32"


@runtime_checkable
class LanguageModel(Protocol):
    """A causal language model as pure functions. Instances are static: hashable, compared by value.

    A target whose features a method reads has one more function, which no other model needs:
    ``embed(params, tokens [...]) -> [..., D]``, the embeddings of tokens, as wide as its features.

    Attributes:
      cache_spec: shape of the cache that ``forward`` uses.
      vocab_size: width of the rows that ``logits`` returns.
      max_length: the largest number of positions the model can see.
    """

    cache_spec: CacheSpec
    vocab_size: int
    max_length: int

    def forward(
        self,
        params: Params,
        tokens: jax.Array,
        positions: jax.Array,
        cache: Any,
        mask: jax.Array | None = None,
        *,
        features: int = 0,
    ) -> Forward:
        """Runs the model on new tokens behind what the cache holds.

        Args:
          params: the model's parameters.
          tokens: ``[B, T]`` int32.
          positions: ``[B, T]`` int32, the position of every new token.
          cache: holds the text so far. The model reads and writes it through
            ``cache.attend(layer, query, key, value, positions, mask)`` only.
          mask: ``[T, T]`` or ``[B, T, T]`` bool, which new token (last axis) each new token sees;
            None means causal.
          features: how many of the last layers' hidden states to return as well.
        """
        ...

    def logits(self, params: Params, hidden: jax.Array) -> jax.Array:
        """Turns hidden states ``[..., D]`` into float32 logits ``[..., V]``."""
        ...


@dataclasses.dataclass(frozen=True)
class ApplyModel:
    """Any pair of pure functions as a language model (bring your own).

    Attributes:
      forward_fn: ``(params, tokens, positions, cache, mask) -> (hidden [B, T, D], cache)``.
      logits_fn: ``(params, hidden [..., D]) -> float32 [..., V]``.
      cache_spec: shape of the cache that ``forward_fn`` uses through ``cache.attend``.
      vocab_size: ``V``.
      max_length: the largest number of positions the model can see.
      embed_fn: ``(params, tokens [...]) -> [..., D]``; only needed by methods that read features.
    """

    forward_fn: Callable[..., tuple[jax.Array, Any]]
    logits_fn: Callable[..., jax.Array]
    cache_spec: CacheSpec
    vocab_size: int
    max_length: int
    embed_fn: Callable[..., jax.Array] | None = None

    @property
    def embed(self) -> Callable[..., jax.Array] | None:
        """See ``LanguageModel``; None if the model has no such function."""
        return self.embed_fn

    def forward(self, params, tokens, positions, cache, mask=None, *, features=0) -> Forward:
        """See ``LanguageModel.forward``; the last hidden state stands for all features."""
        hidden, cache = self.forward_fn(params, tokens, positions, cache, mask)
        if features > 1:
            raise ValueError(f"ApplyModel has the features of one layer, {features} were asked for")
        return Forward(hidden, hidden[..., None, :] if features else None, cache)

    def logits(self, params, hidden):
        """See ``LanguageModel.logits``."""
        return self.logits_fn(params, hidden)
