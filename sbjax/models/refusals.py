"""Settings of config.json that mean something the decoder does not compute, refused by name.

Without this a checkpoint that shares the weight names of a supported family would load and answer
wrongly. Settings that change nothing about the forward pass (dropout, initialisation, token ids,
``pretraining_tp``, which only splits the same products) are left alone.
"""

from typing import Any

from sbjax.models.config import UnsupportedModel

_REASONS = {
    "quantization": "quantised weights are not supported; convert the checkpoint in its original precision",
    "experts": "mixtures of experts are not supported",
    "code": "the model brings its own code; if it computes plain attention layers of this family, remove the "
    "entry from config.json",
    "attention": "this form of attention is not supported",
    "scale": "this scaling of activations is not supported",
    "bias": "a bias in this place is not supported",
    "norm": "normalisation in this place is not supported",
}

# Key to (values that change nothing, why the others are refused).
_NEUTRAL: dict[str, tuple[tuple[Any, ...], str]] = {
    "quantization_config": ((None,), "quantization"),
    "compression_config": ((None,), "quantization"),
    "num_experts": ((None, 0), "experts"),
    "num_local_experts": ((None, 0), "experts"),
    "n_routed_experts": ((None, 0), "experts"),
    "moe_intermediate_size": ((None, 0), "experts"),
    "auto_map": ((None,), "code"),
    "is_encoder_decoder": ((None, False), "attention"),
    "add_cross_attention": ((None, False), "attention"),
    "use_bidirectional_attention": ((None, False), "attention"),
    "attn_logit_softcapping": ((None,), "attention"),
    "attention_chunk_size": ((None,), "attention"),
    "attn_temperature_tuning": ((None, False), "attention"),
    "clip_qkv": ((None,), "attention"),
    "alibi": ((None, False), "attention"),
    "no_rope_layers": ((None,), "attention"),
    "block_configs": ((None,), "attention"),
    "embedding_multiplier": ((None, 1, 1.0), "scale"),
    "residual_multiplier": ((None, 1, 1.0), "scale"),
    "attention_multiplier": ((None,), "scale"),
    "logits_scaling": ((None, 1, 1.0), "scale"),
    "logit_scale": ((None, 1, 1.0), "scale"),
    "scale_emb": ((None, 1, 1.0), "scale"),
    "scale_depth": ((None,), "scale"),
    "bias": ((None, False), "bias"),
    "qkv_bias": ((None, False), "bias"),
    "lm_head_bias": ((None, False), "bias"),
    "attention_out_bias": ((None, False), "bias"),
    "use_qk_norm": ((None, False), "norm"),
    "qk_layernorm": ((None, False), "norm"),
    "partial_rotary_factor": ((None, 1, 1.0), "attention"),
}


def refuse_unsupported(config: dict[str, Any]) -> None:
    """Checks a parsed config.json for settings that no family here computes.

    Raises:
      UnsupportedModel: names the setting, its value and the reason.
    """
    for key, (neutral, reason) in _NEUTRAL.items():
        value = config.get(key)
        if value in neutral or value in ({}, []):
            continue
        shown = value.get("quant_method", "...") if isinstance(value, dict) else value
        raise UnsupportedModel(f"config.json: {key}={shown!r}: {_REASONS[reason]}")
