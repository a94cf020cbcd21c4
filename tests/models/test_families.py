"""config.json in both dialects, and what is refused."""

import dataclasses

import pytest
import transformers

from sbjax.models import UnsupportedModel, from_hf_config, weight_table
from sbjax.models.rotary import LinearScaling, Llama3Scaling, Rope, YarnScaling

SMALL = {
    "vocab_size": 131,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA = SMALL | {"model_type": "llama"}
QWEN2 = SMALL | {"model_type": "qwen2", "sliding_window": 16}
QWEN3 = SMALL | {"model_type": "qwen3", "head_dim": 8}
GEMMA = SMALL | {"model_type": "gemma3_text", "head_dim": 8, "sliding_window": 16}

# config.json files of transformers 4, each as some published checkpoint writes it.
OLD_DIALECT = {
    "llama1_silent": {k: v for k, v in LLAMA.items() if k not in ("num_key_value_heads",)},
    "deepseek_coder": LLAMA | {"rope_theta": 100_000, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama3.1": LLAMA
    | {
        "rope_theta": 500_000.0,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 64,
            "rope_type": "llama3",
        },
    },
    "mistral": SMALL | {"model_type": "mistral", "sliding_window": 32, "rope_theta": 10_000.0},
    "mistral_v0.3": SMALL
    | {"model_type": "mistral", "sliding_window": None, "rope_theta": 1e6, "head_dim": None},
    "qwen2_no_window": QWEN2 | {"use_sliding_window": False, "max_window_layers": 2, "rope_theta": 1e6},
    "qwen2_window": QWEN2 | {"use_sliding_window": True, "max_window_layers": 2, "rope_theta": 1e6},
    "qwen2_yarn": QWEN2
    | {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}},
    "qwen3": QWEN3
    | {"rope_theta": 1e6, "tie_word_embeddings": True, "attention_bias": False, "rope_scaling": None},
    "gemma3": GEMMA
    | {
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 20_000.0,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window_pattern": 3,
        "query_pre_attn_scalar": 16,
    },
    "gemma3_silent": GEMMA,
}


@pytest.mark.parametrize("name", OLD_DIALECT)
def test_both_dialects_mean_the_same(name):
    """transformers 5 reads the old file and writes the new one."""
    old = OLD_DIALECT[name]
    new = transformers.AutoConfig.for_model(**old).to_dict()
    assert "rope_parameters" in new and "rope_theta" not in new
    assert from_hf_config(new) == from_hf_config(old)


def test_what_the_files_say_arrives():
    def read(name):
        return from_hf_config(OLD_DIALECT[name])

    assert read("llama1_silent").kv_heads == 4
    assert read("deepseek_coder").layers[0].rope == Rope(100_000.0, LinearScaling(4.0))
    assert read("llama3.1").layers[0].rope == Rope(500_000.0, Llama3Scaling(8.0, 1.0, 4.0, 64.0))
    assert [layer.window for layer in read("mistral").layers] == [32] * 4
    assert [layer.window for layer in read("mistral_v0.3").layers] == [None] * 4
    assert [layer.window for layer in read("qwen2_no_window").layers] == [None] * 4
    assert [layer.window for layer in read("qwen2_window").layers] == [None, None, 16, 16]
    assert read("qwen2_yarn").layers[0].rope.scaling == YarnScaling(4.0, 128.0, pytest.approx(1.1386294))
    assert read("qwen2_yarn").max_length == 512
    assert read("qwen3").tie_embeddings and not read("qwen3").qkv_bias and read("qwen3").qk_norm
    local, glob = Rope(20_000.0), Rope(1_000_000.0, LinearScaling(8.0))
    assert [layer.rope for layer in read("gemma3").layers] == [local, local, glob, local]
    assert [layer.window for layer in read("gemma3").layers] == [16, 16, None, 16]
    assert read("gemma3").attention_scale == 0.25 and read("gemma3").tie_embeddings


def test_equal_files_share_one_program():
    first, second = from_hf_config(dict(GEMMA)), from_hf_config(dict(GEMMA))
    assert first == second and hash(first) == hash(second)
    assert first != from_hf_config(GEMMA | {"sliding_window": 15})
    assert first != from_hf_config(GEMMA, dtype="bfloat16")


def test_missing_sizes_of_qwen_follow_transformers():
    """Where a file is silent the default is the architecture's, not a guess from the other sizes."""
    silent = {k: v for k, v in QWEN3.items() if k not in ("head_dim", "num_key_value_heads")}
    config = from_hf_config(silent | {"num_attention_heads": 64})
    assert (config.kv_heads, config.head_dim) == (32, 128)
    assert weight_table(config)["model.layers.0.self_attn.k_proj.weight"].shape == (32 * 128, 32)


def yarn(**changes):
    return {"rope_scaling": {"type": "yarn", "factor": 2.0} | changes}


REFUSED = {
    "model_type": ({"model_type": "mixtral"}, "model_type 'mixtral'"),
    "no_model_type": ({"model_type": None}, "model_type None"),
    "images": ({"model_type": "gemma3"}, "gemma3_text"),
    "classifier": ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
    "embedding_model": ({"architectures": ["LlamaModel"]}, "LlamaModel"),
    "quantised": ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantization_config='awq'"),
    "compressed": ({"compression_config": {"format": "int8"}}, "compression_config"),
    "experts": ({"num_local_experts": 8}, "num_local_experts=8"),
    "own_code": ({"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}}, "auto_map"),
    "partial_rotary": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    "partial_rotary_inside": ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    "odd_bias": ({"bias": True}, "bias=True"),
    "qkv_bias": ({"qkv_bias": True}, "qkv_bias=True"),
    "qwen2_without_bias": (QWEN2 | {"attention_bias": False}, "attention_bias=False"),
    "mistral_with_bias": ({"model_type": "mistral", "attention_bias": True}, "attention_bias=True"),
    "qwen3_mlp_bias": (QWEN3 | {"mlp_bias": True}, "mlp_bias"),
    "activation": ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
    "gemma_activation": (GEMMA | {"hidden_activation": "silu"}, "hidden_activation 'silu'"),
    "scale": ({"residual_multiplier": 0.22}, "residual_multiplier=0.22"),
    "bidirectional": (GEMMA | {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
    "score_cap": (GEMMA | {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    "dynamic": (
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "'dynamic'.*depend on how long the text",
    ),
    "longrope": ({"rope_scaling": {"type": "longrope", "factor": 2.0}}, "'longrope'"),
    "su": ({"rope_scaling": {"rope_type": "su", "factor": 2.0}}, "'su'"),
    "unknown_rope": ({"rope_scaling": {"type": "spiral"}}, "'spiral'"),
    "sections": ({"rope_scaling": {"type": "default", "mrope_section": [1, 1, 2]}}, "mrope_section"),
    "unknown_rope_key": (yarn(finetuned=True), "finetuned"),
    "no_factor": ({"rope_scaling": {"type": "linear"}}, "factor"),
    "negative_factor": (yarn(factor=-1.0), "factor.*-1"),
    "theta": ({"rope_theta": "10000"}, "rope_theta"),
    "llama3_order": (
        {"rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0}},
        "low_freq_factor",
    ),
    "flat_gemma_rope": (GEMMA | {"rope_parameters": {"rope_theta": 1e4}}, "rope_theta"),
    "chunked": (QWEN2 | {"layer_types": ["chunked_attention"] * 4}, "chunked_attention"),
    "layer_count": (QWEN2 | {"layer_types": ["full_attention"] * 3}, "3 layers"),
    "llama_layers": ({"layer_types": ["sliding_attention"] * 4, "sliding_window": 8}, "layer_types"),
    "window_switched_off": (QWEN2 | {"layer_types": ["sliding_attention"] * 4}, "use_sliding_window"),
    "window_missing": (GEMMA | {"sliding_window": None}, "sliding_window"),
    "window_zero": ({"model_type": "mistral", "sliding_window": 0}, "sliding_window"),
    "pattern_zero": (GEMMA | {"sliding_window_pattern": 0}, "sliding_window_pattern"),
    "norm_eps": ({"rms_norm_eps": 0.0}, "rms_norm_eps"),
    "logit_cap": (GEMMA | {"final_logit_softcapping": -1.0}, "final_logit_softcapping"),
    "missing_size": ({"hidden_size": None}, "hidden_size"),
    "zero_layers": ({"num_hidden_layers": 0}, "num_hidden_layers"),
    "text_size": ({"vocab_size": "32000"}, "vocab_size"),
    "heads": ({"num_key_value_heads": 3}, "3 key/value heads"),
    "uneven_width": ({"hidden_size": 30}, "hidden_size 30"),
    "odd_head": ({"head_dim": 7}, "head_dim=7"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    changes, message = REFUSED[name]
    with pytest.raises(UnsupportedModel, match=message):
        from_hf_config(LLAMA | changes)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_refused_dtype(dtype):
    with pytest.raises(UnsupportedModel, match=dtype):
        from_hf_config(LLAMA, dtype=dtype)


def test_refused_activation():
    with pytest.raises(UnsupportedModel, match="relu"):
        dataclasses.replace(from_hf_config(LLAMA), activation="relu")


def test_neutral_values_are_not_refused():
    neutral = {"quantization_config": None, "num_experts": 0, "hidden_act": "silu", "pretraining_tp": 2}
    plain = {"bias": False, "layer_types": ["full_attention"] * 4, "architectures": ["LlamaForCausalLM"]}
    assert from_hf_config(LLAMA | neutral | plain) == from_hf_config(LLAMA)
