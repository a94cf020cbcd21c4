"""The settings of a decoder: everything about a model that changes the compiled program."""

import dataclasses
from typing import Literal

from sbjax.models.rotary import Rope


class UnsupportedModel(ValueError):
    """A checkpoint asks for something the decoder does not compute; the message names it."""


@dataclasses.dataclass(frozen=True)
class LayerConfig:
    """What may differ from layer to layer.

    Attributes:
      rope: the rotary embedding.
      window: how many positions a token sees, itself included; None sees everything.
    """

    rope: Rope
    window: int | None = None


@dataclasses.dataclass(frozen=True)
class DecoderConfig:
    """A decoder's settings. Hashable: two equal ones share one compiled program.

    Attributes:
      vocab_size: ``V``, rows of the embedding.
      width: ``D``.
      mlp_width: inner width of the gated MLP.
      heads: ``N``.
      kv_heads: ``M``, divides ``N``.
      head_dim: ``H``.
      layers: one entry per layer, ``L`` of them.
      max_length: the largest number of positions.
      norm_eps: added to the mean square in every norm.
      activation: of the gate in the MLP.
      attention_scale: what query-key products are multiplied by.
      qkv_bias: query, key and value projections have biases.
      out_bias: the attention's output projection has a bias.
      mlp_bias: the MLP's projections have biases.
      qk_norm: queries and keys are normalised over ``H`` before the rotation.
      sandwich_norms: attention and MLP outputs are normalised before they are added.
      norm_offset: added to a norm's weight (1 where a checkpoint stores the deviation from one).
      embed_scale: what embeddings are multiplied by.
      logit_softcap: bound of the logits, ``cap * tanh(logit / cap)``.
      tie_embeddings: the output head is the embedding.
      dtype: of parameters, activations and cache.
    """

    vocab_size: int
    width: int
    mlp_width: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: tuple[LayerConfig, ...]
    max_length: int
    norm_eps: float
    activation: Literal["silu", "gelu_tanh"]
    attention_scale: float
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    sandwich_norms: bool = False
    norm_offset: float = 0.0
    embed_scale: float = 1.0
    logit_softcap: float | None = None
    tie_embeddings: bool = False
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self):
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise UnsupportedModel(
                f"{self.heads} query heads cannot share {self.kv_heads} key/value heads evenly"
            )
        if self.head_dim % 2:
            raise UnsupportedModel(f"rotary embeddings need an even head width, got head_dim={self.head_dim}")
        if self.activation not in ("silu", "gelu_tanh"):
            raise UnsupportedModel(
                f"activation {self.activation!r} is not supported, use 'silu' or 'gelu_tanh'"
            )
        if self.dtype not in ("float32", "bfloat16"):
            raise UnsupportedModel(f"dtype {self.dtype!r} is not supported, use 'float32' or 'bfloat16'")
