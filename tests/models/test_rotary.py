"""Frequencies against transformers at the sizes of published models, and the rotation's laws."""

import jax.numpy as jnp
import numpy as np
import pytest
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from sbjax.models import from_hf_config
from sbjax.models.rotary import Rope, angles, inverse_frequencies, rotate

SIZES = {
    "vocab_size": 8,
    "hidden_size": 4096,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
}
PUBLISHED = {
    "llama-3.1-8b": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "llama-3.2-1b": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "deepseek-coder": {"rope_type": "linear", "rope_theta": 100_000.0, "factor": 4.0},
    "qwen2.5-yarn": {
        "rope_type": "yarn",
        "rope_theta": 1_000_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32_768,
    },
    "yarn-mscale": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 0.707,
    },
    "yarn-exact-ends": {
        "rope_type": "yarn",
        "rope_theta": 150_000.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
        "beta_fast": 24.0,
        "beta_slow": 2.0,
    },
    "yarn-step": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 2.0,
        "original_max_position_embeddings": 4,
        "attention_factor": 0.9,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_frequencies_are_those_of_transformers(name):
    parameters = PUBLISHED[name]
    config = transformers.LlamaConfig(
        **SIZES, max_position_embeddings=131_072, rope_parameters=dict(parameters)
    )
    expected, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
    rope = from_hf_config(config.to_dict()).layers[0].rope
    np.testing.assert_allclose(inverse_frequencies(rope, 128), expected.numpy(), rtol=5e-7)
    cos, _ = angles(rope, 128, jnp.zeros((1, 1), jnp.int32))
    np.testing.assert_allclose(cos, np.full((1, 1, 1, 64), factor, np.float32), rtol=1e-6)


def test_angles_stay_exact_far_out():
    """Cosine and sine of large arguments, against float64 on the same float32 product."""
    positions = np.array([[0, 1, 4095, 32_767, 131_071]], np.int32)
    frequencies = inverse_frequencies(Rope(500_000.0), 128)
    turned = (positions[..., None].astype(np.float32) * frequencies).astype(np.float64)
    cos, sin = angles(Rope(500_000.0), 128, jnp.asarray(positions))
    np.testing.assert_allclose(cos[:, :, 0], np.cos(turned), atol=1e-6)
    np.testing.assert_allclose(sin[:, :, 0], np.sin(turned), atol=1e-6)


def test_scores_depend_on_the_distance_alone():
    chance = np.random.default_rng(0)
    query, key = (jnp.asarray(chance.normal(size=(1, 1, 1, 16)), jnp.float32) for _ in range(2))

    def score(query_position, key_position):
        turned = [
            rotate(x, *angles(Rope(1e4), 16, jnp.full((1, 1), position, jnp.int32)))
            for x, position in ((query, query_position), (key, key_position))
        ]
        return float(jnp.sum(turned[0] * turned[1]))

    assert score(20, 3) == pytest.approx(score(517, 500), abs=1e-4)
    assert abs(score(20, 3) - score(20, 4)) > 1e-2
    assert score(7, 7) == pytest.approx(float(jnp.sum(query * key)), abs=1e-5)


def test_rotation_keeps_the_dtype():
    x = jnp.ones((1, 2, 3, 8), jnp.bfloat16)
    assert rotate(x, *angles(Rope(1e4), 8, jnp.zeros((1, 2), jnp.int32))).dtype == jnp.bfloat16
