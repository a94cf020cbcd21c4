"""From a Hugging Face config.json to the settings of the decoder, family by family."""

import dataclasses
from typing import Any

from sbjax.models.config import DecoderConfig, LayerConfig, UnsupportedModel
from sbjax.models.fields import number, size
from sbjax.models.refusals import refuse_unsupported
from sbjax.models.rope_config import read_rope, read_rope_by_layer_type, rope_length
from sbjax.models.weight_names import Weight, weight_table
from sbjax.models.windows import Rule, read_windows

__all__ = ["FAMILIES", "Family", "UnsupportedModel", "Weight", "from_hf_config", "weight_table"]


@dataclasses.dataclass(frozen=True)
class Family:
    """What an architecture fixes, and what transformers assumes where config.json is silent.

    Attributes:
      architectures: names of the causal language model.
      kv_heads: default; None means as many as query heads.
      head_dim: default; None means width / heads.
      max_length: default.
      qkv_bias: fixed, or None if ``attention_bias`` decides over all four projections.
      mlp_bias: whether ``mlp_bias`` may ask for biases.
      qk_norm: queries and keys are normalised.
      windows: which layers see a sliding window only.
      gemma: Gemma's norms, embedding scale, activation, attention scale and tied head.
    """

    architectures: tuple[str, ...]
    kv_heads: int | None
    head_dim: int | None
    max_length: int
    qkv_bias: bool | None
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: Rule = "none"
    gemma: bool = False


FAMILIES = {
    "llama": Family(("LlamaForCausalLM", "LLaMAForCausalLM"), None, None, 2048, qkv_bias=None, mlp_bias=True),
    "mistral": Family(("MistralForCausalLM",), 8, None, 131_072, qkv_bias=False, windows="all"),
    "qwen2": Family(("Qwen2ForCausalLM",), 32, None, 32_768, qkv_bias=True, windows="qwen"),
    "qwen3": Family(("Qwen3ForCausalLM",), 32, 128, 32_768, qkv_bias=None, qk_norm=True, windows="qwen"),
    "gemma3_text": Family(
        ("Gemma3ForCausalLM",), 4, 256, 131_072, qkv_bias=None, qk_norm=True, windows="gemma", gemma=True
    ),
}


def from_hf_config(config: dict[str, Any], dtype: str = "float32") -> DecoderConfig:
    """Turns a parsed config.json (transformers 4 or 5) into decoder settings.

    Args:
      config: the parsed config.json.
      dtype: of parameters, activations and cache: "float32" or "bfloat16".

    Raises:
      UnsupportedModel: for anything the decoder does not compute, by name.
    """
    family = _family(config)
    refuse_unsupported(config)
    _refuse_odd_biases(config, family)
    heads = size(config, "num_attention_heads")
    width = size(config, "hidden_size")
    head_dim = _head_dim(config, family, width, heads)
    layers, max_length = _layers(config, family)
    bias = bool(config.get("attention_bias"))
    return DecoderConfig(
        vocab_size=size(config, "vocab_size"),
        width=width,
        mlp_width=size(config, "intermediate_size"),
        heads=heads,
        kv_heads=size(config, "num_key_value_heads", family.kv_heads or heads, null=heads),
        head_dim=head_dim,
        layers=layers,
        max_length=max_length,
        norm_eps=number(config, "rms_norm_eps", 1e-6),
        qkv_bias=bias if family.qkv_bias is None else family.qkv_bias,
        out_bias=bias if family.qkv_bias is None else False,
        mlp_bias=bool(config.get("mlp_bias")),
        qk_norm=family.qk_norm,
        tie_embeddings=bool(config.get("tie_word_embeddings", family.gemma)),
        dtype=dtype,
        **_gemma(config, width) if family.gemma else _plain(config, head_dim),
    )


def _family(config: dict[str, Any]) -> Family:
    kind = config.get("model_type")
    if kind == "gemma3":
        raise UnsupportedModel("model_type 'gemma3' reads images; of Gemma 3 only 'gemma3_text' is supported")
    if kind not in FAMILIES:
        raise UnsupportedModel(f"model_type {kind!r} is not supported, only {', '.join(FAMILIES)}")
    family, named = FAMILIES[kind], config.get("architectures") or []
    if named and not set(named) & set(family.architectures):
        raise UnsupportedModel(
            f"architectures {named} of model_type {kind!r} is not a supported language "
            f"model, only {family.architectures[0]} is"
        )
    return family


def _refuse_odd_biases(config: dict[str, Any], family: Family) -> None:
    """``attention_bias`` and ``mlp_bias`` must not be read where the architecture has none."""
    bias = config.get("attention_bias")
    if family.qkv_bias is not None and bias is not None and bool(bias) != family.qkv_bias:
        raise UnsupportedModel(f"attention_bias={bias} contradicts model_type {config['model_type']!r}")
    if config.get("mlp_bias") and not family.mlp_bias:
        raise UnsupportedModel(f"mlp_bias is not supported for model_type {config['model_type']!r}")


def _plain(config: dict[str, Any], head_dim: int) -> dict[str, Any]:
    _require(config, "hidden_act", ("silu", "swish"))
    return {"activation": "silu", "attention_scale": head_dim**-0.5}


def _gemma(config: dict[str, Any], width: int) -> dict[str, Any]:
    _require(config, "hidden_activation", ("gelu_pytorch_tanh",))
    cap = "final_logit_softcapping"
    return {
        "activation": "gelu_tanh",
        "attention_scale": number(config, "query_pre_attn_scalar", 256) ** -0.5,
        "sandwich_norms": True,
        "norm_offset": 1.0,
        "embed_scale": width**0.5,
        "logit_softcap": number(config, cap) if config.get(cap) is not None else None,
    }


def _layers(config: dict[str, Any], family: Family) -> tuple[tuple[LayerConfig, ...], int]:
    """Every layer's rotary embedding and window, and the number of positions they reach."""
    length = size(config, "max_position_embeddings", family.max_length)
    windows = read_windows(config, family.windows)
    if not family.gemma:
        rope = read_rope(config, length)
        return tuple(LayerConfig(rope, window) for window in windows), rope_length(rope, length)
    thetas = {"full_attention": 1_000_000.0, "sliding_attention": 10_000.0}
    ropes = read_rope_by_layer_type(config, length, thetas)
    everywhere, local = ropes["full_attention"], ropes["sliding_attention"]
    layers = tuple(LayerConfig(local if window else everywhere, window) for window in windows)
    return layers, rope_length(everywhere, length)


def _head_dim(config: dict[str, Any], family: Family, width: int, heads: int) -> int:
    if config.get("head_dim") is None and family.head_dim is None and width % heads:
        raise UnsupportedModel(
            f"hidden_size {width} is not a multiple of num_attention_heads {heads}, "
            "and config.json has no head_dim"
        )
    return size(config, "head_dim", family.head_dim or width // heads, null=width // heads)


def _require(config: dict[str, Any], key: str, supported: tuple[str, ...]) -> None:
    value = config.get(key, supported[0])
    if value not in supported:
        raise UnsupportedModel(f"{key} {value!r} is not supported here, only {supported[0]!r}")
