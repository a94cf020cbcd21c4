"""The decoder: one Flax NNX module for all families, and its pure functions for the engine.

Axes: ``B`` rows, ``T`` tokens in a forward, ``F`` layers whose states are returned, ``V``
vocabulary, ``D`` model width.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from sbjax.language_model import CacheSpec, Forward, Params
from sbjax.models.config import DecoderConfig
from sbjax.models.layers import Draw, Layer, RMSNorm
from sbjax.models.projection import project
from sbjax.models.rotary import angles
from sbjax.models.weight_names import weight_table


def normal_draw(seed: int, dtype: str) -> Draw:
    """Normal initial values. From NumPy, since jax.random compiles a program for every shape."""
    generator = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...], deviation: float) -> jax.Array:
        values = generator.standard_normal(shape, np.float32) * np.float32(deviation)
        return jnp.asarray(values.astype(dtype))

    return draw


class Table(nnx.Module):
    """A matrix with a row per token: the embedding, and an untied output head.

    Attributes:
      weight: ``[V, D]``.
    """

    def __init__(self, config: DecoderConfig, draw: Draw):
        self.weight = nnx.Param(draw((config.vocab_size, config.width), 0.02))


class Decoder(nnx.Module):
    """A decoder-only transformer. Layers are unrolled: scanning would copy each layer's weights.

    Args:
      config: the settings.
      draw: source of the initial parameters, for example ``normal_draw(seed, config.dtype)``.
    """

    def __init__(self, config: DecoderConfig, draw: Draw):
        self.config = config
        self.embed_tokens = Table(config, draw)
        self.layers = nnx.Dict({str(i): Layer(config, i, draw) for i in range(len(config.layers))})
        self.norm = RMSNorm(config.width, config)
        self.lm_head = None if config.tie_embeddings else Table(config, draw)

    def __call__(self, tokens, positions, cache, mask=None, *, features: int = 0) -> Forward:
        """See ``LanguageModel.forward``."""
        depth = len(self.config.layers)
        if not 0 <= features <= depth:
            raise ValueError(f"features must be between 0 and the {depth} layers there are, got {features}")
        x = self.embed(tokens)
        ropes = dict.fromkeys(layer.rope for layer in self.config.layers)
        turned = {rope: angles(rope, self.config.head_dim, positions) for rope in ropes}
        states = []
        for index, settings in enumerate(self.config.layers):
            x, cache = self.layers[str(index)](x, positions, cache, mask, *turned[settings.rope])
            if index >= depth - features:
                states.append(x)
        return Forward(self.norm(x), jnp.stack(states, axis=2) if features else None, cache)

    def embed(self, tokens: jax.Array) -> jax.Array:
        """Embeddings ``[..., D]`` of tokens, as the first layer gets them."""
        x = self.embed_tokens.weight[...][tokens]
        return x * jnp.asarray(self.config.embed_scale, x.dtype)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """See ``LanguageModel.logits``."""
        head = self.embed_tokens if self.lm_head is None else self.lm_head
        logits = project(hidden, head.weight[...])
        cap = self.config.logit_softcap
        return logits if cap is None else cap * jnp.tanh(logits / cap)


@functools.lru_cache(maxsize=64)
def _split(config: DecoderConfig) -> tuple[nnx.GraphDef, Any]:
    """The static graph of a decoder and its abstract parameters as a plain dict."""

    def draw(shape: tuple[int, ...], deviation: float) -> jax.Array:
        return jnp.zeros(shape, config.dtype)

    graphdef, state = nnx.split(nnx.eval_shape(lambda: Decoder(config, draw)))
    return graphdef, nnx.to_pure_dict(state)


@dataclasses.dataclass(frozen=True)
class DecoderModel:
    """The decoder as pure functions of a plain nested dict of parameters (a ``LanguageModel``).

    ``features`` of ``forward`` are the outputs of the last ``F`` layers before the final norm, the
    last layer last.

    Attributes:
      config: the settings; two models with equal settings are equal.
    """

    config: DecoderConfig

    @property
    def cache_spec(self) -> CacheSpec:
        """Shape of the cache."""
        config = self.config
        return CacheSpec(len(config.layers), config.kv_heads, config.head_dim, config.dtype)

    @property
    def vocab_size(self) -> int:
        """Width of a row of logits."""
        return self.config.vocab_size

    @property
    def max_length(self) -> int:
        """The largest number of positions."""
        return self.config.max_length

    def forward(self, params: Params, tokens, positions, cache, mask=None, *, features=0) -> Forward:
        """See ``LanguageModel.forward``."""
        return self._decoder(params)(tokens, positions, cache, mask, features=features)

    def logits(self, params: Params, hidden: jax.Array) -> jax.Array:
        """See ``LanguageModel.logits``."""
        return self._decoder(params).logits(hidden)

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        """Embeddings ``[..., D]`` of tokens, see ``LanguageModel``."""
        return self._decoder(params).embed(tokens)

    def init(self, seed: int) -> Params:
        """Draws initial parameters.

        Returns:
          A plain nested dict of arrays, with the keys of ``weight_table``'s paths.
        """
        return nnx.to_pure_dict(nnx.state(Decoder(self.config, normal_draw(seed, self.config.dtype))))

    def abstract(self) -> Params:
        """The parameters as ``jax.ShapeDtypeStruct``s, without making them."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), _split(self.config)[1])

    def logical_axes(self) -> Any:
        """The parameters' dict with a tuple of logical axis names in the place of every array.

        The names are those of ``weight_names.Weight.axes``.
        """
        tree: dict[str, Any] = {}
        for weight in weight_table(self.config).values():
            *parents, leaf = weight.path
            functools.reduce(lambda node, key: node.setdefault(key, {}), parents, tree)[leaf] = weight.axes
        return tree

    def _decoder(self, params: Params) -> Decoder:
        return nnx.merge(_split(self.config)[0], params)
