"""The two models: their Hugging Face settings, attention without a cache, and growing in depth."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from pair_training.vocabulary import END_OF_TEXT_ID
from sbjax.language_model import Params
from sbjax.models.decoder import DecoderModel
from sbjax.models.families import from_hf_config


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Sizes of a Llama.

    Attributes:
      width: ``D``.
      layers: ``L``.
      heads: ``N``.
      kv_heads: ``M``.
      mlp_width: inner width of the MLP.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    mlp_width: int

    def __post_init__(self):
        """Refuses sizes that do not make a model."""
        if min(dataclasses.astuple(self)) < 1:
            raise ValueError(f"all sizes of a model must be positive, got {self}")
        if self.width % self.heads or self.heads % self.kv_heads:
            raise ValueError(f"heads must divide width, and kv_heads must divide heads, got {self}")

    def hf_config(self, vocab_size: int, max_length: int, dtype: str) -> dict[str, Any]:
        """The config.json of the model, in the dialect that transformers 4 and 5 both read."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": vocab_size,
            "hidden_size": self.width,
            "intermediate_size": self.mlp_width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.width // self.heads,
            "hidden_act": "silu",
            "max_position_embeddings": max_length,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "rope_scaling": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": END_OF_TEXT_ID,
            "eos_token_id": END_OF_TEXT_ID,
            "torch_dtype": dtype,
        }

    def model(self, vocab_size: int, max_length: int) -> DecoderModel:
        """The decoder in float32, as it is trained."""
        return DecoderModel(from_hf_config(self.hf_config(vocab_size, max_length, "float32")))


class NoCache:
    """Stands in for a cache while training: attention among the tokens of the forward, nothing kept.

    Queries are taken in ``CHUNKS`` parts and each part sees only the keys up to its end: less than two
    thirds of the scores are computed, and the rows of the softmax stay in the processor's cache.
    """

    CHUNKS = 4

    def attend(
        self, layer, query, key, value, positions, mask=None, *, scale, window=None
    ) -> tuple[jax.Array, "NoCache"]:
        """See ``KVCache.attend``; only causal attention without a window is there."""
        if mask is not None or window is not None:
            raise ValueError("training has neither masks nor sliding windows")
        length = query.shape[1]
        step = -(-length // self.CHUNKS)
        parts = []
        for start in range(0, length, step):
            end = min(start + step, length)
            seen = jnp.tril(jnp.ones((end - start, end), bool), start)
            part = jax.nn.dot_product_attention(
                query[:, start:end], key[:, :end], value[:, :end], mask=seen, scale=scale
            )
            parts.append(part)
        return jnp.concatenate(parts, axis=1), self


def forward_logits(model: DecoderModel, params: Params, tokens: jax.Array) -> jax.Array:
    """Float32 logits ``[B, T, V]`` of whole texts ``[B, T]``."""
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=jnp.int32), tokens.shape)
    return model.logits(params, model.forward(params, tokens, positions, NoCache()).hidden)


def grow(params: Params, layers: int, *, keep: bool) -> Params:
    """Inserts layers between those there are, without changing what the model computes.

    Every layer is followed by copies of itself whose two outputs are zero: they add nothing until they
    are trained (arXiv:2401.02415). Early on a shallow model learns as much from a token, for less work.

    Args:
      params: parameters of a model with fewer layers, or moments of an optimiser in their shape.
      layers: how many there are to be.
      keep: whether copies are made, as of parameters; otherwise new layers are all zeros, as of moments.
    """
    old = len(params["layers"])
    grown = {}
    for index in range(layers):
        source = index * old // layers
        layer = params["layers"][str(source)]
        is_new = index > 0 and (index - 1) * old // layers == source
        grown[str(index)] = _silent(layer, keep) if is_new else layer
    return params | {"layers": grown}


def shallow(params: Params, layers: int) -> Params:
    """The inverse of ``grow``: the layers that were there before it, with all else as it is.

    Args:
      params: parameters of a model with more layers.
      layers: how many are kept, evenly spaced: where ``grow`` puts that many.
    """
    depth = len(params["layers"])
    kept = {str(i): params["layers"][str(-(-i * depth // layers))] for i in range(layers)}
    return jax.tree.map(jnp.array, params | {"layers": kept})


def _silent(layer: Params, keep: bool) -> Params:
    """A copy of a layer that adds nothing to the stream, or zeros all through."""

    def leaf(path, value):
        silent = not keep or any(part.key in ("o_proj", "down_proj") for part in path)
        return jnp.zeros_like(value) if silent else jnp.array(value)

    return jax.tree_util.tree_map_with_path(leaf, layer)
