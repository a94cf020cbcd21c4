"""The weights of a decoder: Hugging Face tensor name, place among the parameters, shape, axes.

One tensor is one parameter, in the orientation ``[out, in]`` of the checkpoint: conversion moves
bytes and changes none, and ``x @ W.T`` is the product that CPUs read fastest.
"""

from typing import NamedTuple

from sbjax.models.config import DecoderConfig


class Weight(NamedTuple):
    """One weight.

    Attributes:
      path: keys into the nested dict of parameters.
      shape: its shape, in a checkpoint and as a parameter.
      axes: a logical name per axis, for placement on a mesh: "vocab", "embed", "heads" (``N * H``),
        "kv_heads" (``M * H``), "mlp", "head_dim". "embed" and "head_dim" stay whole.
    """

    path: tuple[str, ...]
    shape: tuple[int, ...]
    axes: tuple[str, ...]


def weight_table(config: DecoderConfig) -> dict[str, Weight]:
    """All weights by their Hugging Face names; a tied head has no weight of its own.

    The path is the name split at its dots, without the leading "model".
    """
    sizes = {
        "vocab": config.vocab_size,
        "embed": config.width,
        "heads": config.heads * config.head_dim,
        "kv_heads": config.kv_heads * config.head_dim,
        "mlp": config.mlp_width,
        "head_dim": config.head_dim,
    }
    names = {"model.embed_tokens.weight": ("vocab", "embed"), "model.norm.weight": ("embed",)}
    for index in range(len(config.layers)):
        names |= {f"model.layers.{index}.{name}": axes for name, axes in _layer(config).items()}
    if not config.tie_embeddings:
        names["lm_head.weight"] = ("vocab", "embed")
    return {
        name: Weight(tuple(name.removeprefix("model.").split(".")), tuple(sizes[a] for a in axes), axes)
        for name, axes in names.items()
    }


def _layer(config: DecoderConfig) -> dict[str, tuple[str, ...]]:
    """Axes of one layer's weights by their names within the layer."""
    weights = {
        "input_layernorm.weight": ("embed",),
        **_projection("self_attn.q_proj", "heads", "embed", config.qkv_bias),
        **_projection("self_attn.k_proj", "kv_heads", "embed", config.qkv_bias),
        **_projection("self_attn.v_proj", "kv_heads", "embed", config.qkv_bias),
        **_projection("self_attn.o_proj", "embed", "heads", config.out_bias),
        "post_attention_layernorm.weight": ("embed",),
        **_projection("mlp.gate_proj", "mlp", "embed", config.mlp_bias),
        **_projection("mlp.up_proj", "mlp", "embed", config.mlp_bias),
        **_projection("mlp.down_proj", "embed", "mlp", config.mlp_bias),
    }
    if config.qk_norm:
        weights |= {"self_attn.q_norm.weight": ("head_dim",), "self_attn.k_norm.weight": ("head_dim",)}
    if config.sandwich_norms:
        weights |= {
            "pre_feedforward_layernorm.weight": ("embed",),
            "post_feedforward_layernorm.weight": ("embed",),
        }
    return weights


def _projection(name: str, out: str, into: str, bias: bool) -> dict[str, tuple[str, ...]]:
    weights = {f"{name}.weight": (out, into)}
    return weights | {f"{name}.bias": (out,)} if bias else weights
