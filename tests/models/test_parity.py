"""The decoder against transformers (torch, float32), for every family and every option it honours."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from sbjax.cache import KVCache
from sbjax.models import DecoderModel, from_hf_config, weight_table

ROWS, LENGTH, SLOTS, BLOCK, VOCAB = 2, 104, 120, 8, 131
TOLERANCE = 1e-4

SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-3,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
}
CASES = {
    "llama": ("llama", {}),
    "llama3_gqa_tied_wide_heads": (
        "llama",
        {"num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True, "rope_parameters": LLAMA3},
    ),
    "llama_linear_all_biases": (
        "llama",
        {
            "num_key_value_heads": 1,
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100_000.0},
        },
    ),
    "mistral_window": ("mistral", {"num_key_value_heads": 2, "sliding_window": 7}),
    "qwen2_late_window": (
        "qwen2",
        {
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 11,
            "max_window_layers": 1,
            "rope_parameters": YARN | {"mscale": 1.5, "mscale_all_dim": 0.5, "truncate": False},
        },
    ),
    "qwen3_named_windows": (
        "qwen3",
        {
            "num_key_value_heads": 2,
            "head_dim": 16,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 9,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": YARN | {"attention_factor": 1.3, "beta_fast": 16, "beta_slow": 2},
        },
    ),
    "gemma3": (
        "gemma3_text",
        {
            "num_hidden_layers": 3,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": GEMMA_ROPE,
        },
    ),
    "gemma3_untied_capped": (
        "gemma3_text",
        {
            "num_key_value_heads": 1,
            "head_dim": 8,
            "sliding_window": 5,
            "attention_bias": True,
            "sliding_window_pattern": 2,
            "tie_word_embeddings": False,
            "final_logit_softcapping": 3.0,
        },
    ),
}


@functools.lru_cache
def oracle(case):
    """Builds a transformers model with random weights, biases and norms, and runs it once.

    Returns the torch model, our model, our parameters, the text ``[B, T]``, the logits
    ``[B, T, V]`` and the output of every layer ``[B, T, L, D]``.
    """
    kind, changes = CASES[case]
    config = transformers.AutoConfig.for_model(kind, **{**SMALL, **changes})
    theirs = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    chance = torch.Generator().manual_seed(len(case))
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=chance) + 0.5 * (weight.ndim == 1))
    states = []
    for layer in theirs.model.layers:
        layer.register_forward_hook(lambda module, inputs, out: states.append(out.detach().numpy()))
    text = np.random.default_rng(0).integers(0, VOCAB, (ROWS, LENGTH), dtype=np.int32)
    with torch.no_grad():
        logits = theirs(torch.tensor(text, dtype=torch.int64)).logits.numpy()
    model = DecoderModel(from_hf_config(config.to_dict()))
    params = to_params(theirs.state_dict(), weight_table(model.config))
    return theirs, model, params, text, logits, np.stack(states, axis=2)


def to_params(tensors, table):
    params = {}
    for name, weight in table.items():
        *parents, leaf = weight.path
        node = functools.reduce(lambda inner, key: inner.setdefault(key, {}), parents, params)
        node[leaf] = jnp.asarray(tensors[name].numpy())
    return params


def fresh_cache(model):
    """An empty cache whose slots hold large numbers: whoever reads a dead slot is found out."""
    cache = KVCache.create(model.cache_spec, ROWS, SLOTS)
    return cache.replace(
        keys=jax.tree.map(lambda buffer: buffer + 1e3, cache.keys),
        values=jax.tree.map(lambda buffer: buffer + 1e3, cache.values),
    )


# Without LLVM's optimiser a program compiles in half the time; what XLA makes of it is the same.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.partial(quick_jit, static_argnums=(0, 5))
def step(model, params, tokens, cache, kept, features=0):
    """One forward of which ``kept [B]`` tokens stay."""
    positions = cache.length[:, None] + jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    out = model.forward(params, tokens, positions, cache, features=features)
    cache = out.cache.with_length(cache.length + kept)
    return model.logits(params, out.hidden), out.features, cache


@pytest.mark.parametrize("case", CASES)
def test_weight_table_is_the_state_dict(case):
    theirs, model, *_ = oracle(case)
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.state_dict().items()}
    if model.config.tie_embeddings:
        del shapes["lm_head.weight"]
    assert {name: weight.shape for name, weight in weight_table(model.config).items()} == shapes


@pytest.mark.parametrize("case", CASES)
def test_one_forward(case):
    _, model, params, text, logits, states = oracle(case)
    ours, features, _ = step(model, params, text, fresh_cache(model), np.zeros(ROWS, np.int32), 2)
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, logits, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(features, states[:, :, -2:], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_prefill_then_single_tokens(case):
    _, model, params, text, logits, _ = oracle(case)
    cache, rows, prefill = fresh_cache(model), [], 4 * BLOCK
    for chunk in [
        *np.split(text[:, :prefill], 4, axis=1),
        *np.split(text[:, prefill:], LENGTH - prefill, axis=1),
    ]:
        out, _, cache = step(model, params, chunk, cache, np.full(ROWS, chunk.shape[1], np.int32))
        rows.append(out)
    np.testing.assert_allclose(np.concatenate(rows, axis=1), logits, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_blocks_with_rejections(case):
    """Rows keep different numbers of tokens of every block; the rest of the block is garbage."""
    _, model, params, text, logits, _ = oracle(case)
    chance = np.random.default_rng(1)
    cache, length = fresh_cache(model), np.zeros(ROWS, np.int32)
    seen = np.full_like(logits, np.nan)
    while length.min() < LENGTH:
        kept = np.minimum(chance.integers(0, BLOCK + 1, ROWS, dtype=np.int32), LENGTH - length)
        block = chance.integers(0, VOCAB, (ROWS, BLOCK), dtype=np.int32)
        spans = [
            (row, slice(start, start + n)) for row, (start, n) in enumerate(zip(length, kept, strict=True))
        ]
        for row, span in spans:
            block[row, : kept[row]] = text[row, span]
        out, _, cache = step(model, params, block, cache, kept)
        for row, span in spans:
            seen[row, span] = out[row, : kept[row]]
        length = length + kept
        np.testing.assert_array_equal(cache.length, length)
    np.testing.assert_allclose(seen, logits, rtol=0, atol=TOLERANCE)


def test_gradients():
    """What training sees: the gradient of the mean cross entropy, every parameter's."""
    theirs, model, params, text, *_ = oracle("gemma3")
    text = text[:, :24]
    inputs = torch.tensor(text, dtype=torch.int64)
    theirs.zero_grad()
    theirs(inputs, labels=inputs).loss.backward()
    expected = to_params({n: w.grad for n, w in theirs.named_parameters()}, weight_table(model.config))

    @quick_jit
    @jax.grad
    def gradient(params):
        positions = jnp.broadcast_to(jnp.arange(24, dtype=jnp.int32)[None], text.shape)
        cache = KVCache.create(model.cache_spec, ROWS, 24)
        logits = model.logits(params, model.forward(params, text, positions, cache).hidden)
        scores = jax.nn.log_softmax(logits[:, :-1])
        return -jnp.take_along_axis(scores, text[:, 1:, None], axis=-1).mean()

    jax.tree.map(
        lambda ours, wanted: np.testing.assert_allclose(ours, wanted, rtol=1e-3, atol=1e-5),
        gradient(params),
        expected,
    )
