"""Real decoders that are small enough to compile in a moment."""

from sbjax.models import DecoderModel, from_hf_config


def small_llama(
    layers: int,
    *,
    width: int = 32,
    heads: int = 4,
    kv_heads: int = 2,
    mlp_width: int = 48,
    vocab_size: int = 61,
    max_length: int = 128,
    dtype: str = "float32",
) -> DecoderModel:
    """A Llama with the embedding as output head; ``model.init(seed)`` draws its parameters."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": width,
        "intermediate_size": mlp_width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab_size,
        "max_position_embeddings": max_length,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    return DecoderModel(from_hf_config(config, dtype))
