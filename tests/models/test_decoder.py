"""The decoder by itself: parameters, masks among new tokens, features, dtypes, traces."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax.cache import KVCache
from sbjax.language_model import LanguageModel
from sbjax.models import Decoder, DecoderModel, from_hf_config, weight_table
from sbjax.models.decoder import normal_draw

SMALL = {
    "vocab_size": 131,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 5,
    "max_position_embeddings": 64,
}
KINDS = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {},
    "qwen2": {},
    "qwen3": {"tie_word_embeddings": True},
    "gemma3_text": {"sliding_window_pattern": 2, "final_logit_softcapping": 5.0},
}


def small(kind, dtype="float32"):
    return DecoderModel(from_hf_config(SMALL | {"model_type": kind} | KINDS[kind], dtype))


# Without LLVM's optimiser a program compiles in half the time; what XLA makes of it is the same.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@functools.partial(quick_jit, static_argnums=0)
def step(model, params, tokens, positions, cache, mask=None):
    out = model.forward(params, tokens, positions, cache, mask)
    return model.logits(params, out.hidden), out.cache


def line(tokens, start=0):
    """Positions ``[B, T]`` of tokens one behind the other."""
    positions = start + jnp.arange(tokens.shape[1], dtype=jnp.int32)[None]
    return jnp.broadcast_to(positions, tokens.shape)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_a_plain_dict_of_the_table(kind):
    model = small(kind)
    params, abstract, axes = model.init(0), model.abstract(), model.logical_axes()
    assert isinstance(model, LanguageModel)
    assert jax.tree.structure(params) == jax.tree.structure(abstract)
    jax.tree.map(
        lambda leaf, spec: (leaf.shape, leaf.dtype) == (spec.shape, spec.dtype) or pytest.fail(),
        params,
        abstract,
    )
    table = weight_table(model.config)
    assert len(jax.tree.leaves(params)) == len(table)
    for weight in table.values():
        place, names = params, axes
        for key in weight.path:
            assert type(place) is dict
            place, names = place[key], names[key]
        assert place.shape == weight.shape
        assert names == weight.axes and len(names) == place.ndim
    vocab = "lm_head" if not model.config.tie_embeddings else "embed_tokens"
    assert axes[vocab]["weight"] == ("vocab", "embed")
    assert axes["layers"]["1"]["self_attn"]["o_proj"]["weight"] == ("embed", "heads")
    assert axes["layers"]["0"]["mlp"]["down_proj"]["weight"] == ("embed", "mlp")


def test_seeds_differ_and_repeat():
    model = small("llama")
    first, again, other = (jax.tree.leaves(model.init(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_the_module_works_without_the_functions():
    model = small("qwen3")
    module = Decoder(model.config, normal_draw(3, "float32"))
    tokens = jnp.asarray([[5, 6, 7]], jnp.int32)
    cache = KVCache.create(model.cache_spec, 1, 8)
    ours = quick_jit(lambda: module.logits(module(tokens, line(tokens), cache).hidden))()
    expected, _ = step(model, model.init(3), tokens, line(tokens), cache)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_mask_among_new_tokens(kind):
    """Two continuations side by side, [a b | c d] behind one prefix, equal the two written alone."""
    model, chance = small(kind), np.random.default_rng(0)
    params, causal = model.init(0), jnp.tril(jnp.ones((4, 4), bool))
    prefix, both = jnp.asarray(chance.integers(0, 131, (2, 1, 4)), jnp.int32)
    _, cache = step(model, params, prefix, line(prefix), KVCache.create(model.cache_spec, 1, 16), causal)
    cache = cache.with_length(jnp.full(1, 4))
    mask = jnp.asarray(np.kron(np.eye(2), np.tril(np.ones((2, 2)))), bool)
    positions = jnp.asarray([[4, 5, 4, 5]], jnp.int32)
    together, _ = step(model, params, both, positions, cache, mask)
    alone = [
        step(model, params, part, line(part, 4), cache, causal[:2, :2])[0]
        for part in jnp.split(both, 2, axis=1)
    ]
    np.testing.assert_allclose(together, jnp.concatenate(alone, axis=1), atol=1e-5)
    assert not np.allclose(together, step(model, params, both, positions, cache, causal)[0], atol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_bfloat16(kind):
    """Strict promotion holds, the cache is bfloat16, logits are float32 and near the exact ones."""
    model, exact = small(kind, "bfloat16"), small(kind)
    weights = exact.init(0)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), weights)
    assert jax.tree.leaves(model.abstract())[0].dtype == jnp.bfloat16
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(model.init(0)))
    tokens = jnp.asarray([[3, 1, 4, 1, 5, 9, 2, 6]], jnp.int32)
    ours, cache = step(model, params, tokens, line(tokens), KVCache.create(model.cache_spec, 1, 8))
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    expected, _ = step(exact, rounded, tokens, line(tokens), KVCache.create(exact.cache_spec, 1, 8))
    assert ours.dtype == jnp.float32 and cache.keys[0].dtype == jnp.bfloat16
    assert float(jnp.abs(ours - expected).max()) < 0.05 * float(jnp.abs(expected).max())


def test_features_asked_for_must_exist():
    model = small("llama")
    tokens = jnp.zeros((1, 1), jnp.int32)
    with pytest.raises(ValueError, match="between 0 and the 2 layers"):
        model.forward(model.init(0), tokens, tokens, None, features=3)


def test_equal_models_share_one_trace():
    traces = []

    @functools.partial(quick_jit, static_argnums=0)
    def counted(model, params, tokens, cache):
        traces.append(1)
        return model.forward(params, tokens, tokens, cache).hidden

    params, tokens = small("mistral").init(0), jnp.zeros((1, 1), jnp.int32)
    for _ in range(3):
        model = small("mistral")
        counted(model, params, tokens, KVCache.create(model.cache_spec, 1, 4))
    assert len(traces) == 1
