"""Prompts are read into the same cache whatever the chunk, their length and their neighbours."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import DecoderModel, KVCache, from_hf_config
from sbjax.prefill import prefill
from sbjax.testing import TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
SLOTS, CHUNK = 24, 4
LENGTHS = [1, 2, CHUNK, CHUNK + 1, CHUNK + 2, 2 * CHUNK + 1, 20, 21]
TEXT = np.random.default_rng(0).integers(0, 7, (len(LENGTHS), SLOTS)).astype(np.int32)
TABLE = TableModel(7, max_length=SLOTS)
DECODER = DecoderModel(
    from_hf_config(
        {
            "model_type": "mistral", "vocab_size": 7, "hidden_size": 16, "intermediate_size": 16,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
            "max_position_embeddings": SLOTS, "sliding_window": 3, "tie_word_embeddings": False,
        }
    )
)  # fmt: skip


def read(model, params, text, lengths, chunk: int) -> KVCache:
    cache = KVCache.create(model.cache_spec, len(text), SLOTS)
    return prefill(model, params, cache, jnp.asarray(text), jnp.asarray(lengths, jnp.int32), chunk=chunk)


def live(cache: KVCache, row: int, layer: int) -> np.ndarray:
    """Keys and values of a row's text."""
    n = int(cache.length[row])
    return np.stack([np.asarray(x[layer][row, :, :n]) for x in (cache.keys, cache.values)])


@functools.partial(jax.jit, static_argnums=0)
def whole(model, params, text) -> KVCache:
    """What one forward over a whole text leaves in the cache."""
    positions = jnp.broadcast_to(jnp.arange(SLOTS, dtype=jnp.int32), text.shape)
    cache = model.forward(params, text, positions, KVCache.create(model.cache_spec, len(text), SLOTS)).cache
    return cache.with_length(jnp.full(len(text), SLOTS))


@pytest.mark.parametrize("chunk", [1, CHUNK, 7, 32])
def test_every_chunk_leaves_the_cache_of_one_forward(chunk):
    cache = read(TABLE, None, TEXT, LENGTHS, chunk)
    assert cache.length.tolist() == [length - 1 for length in LENGTHS]
    wanted = whole(TABLE, None, TEXT)
    for row, length in enumerate(LENGTHS):
        np.testing.assert_array_equal(live(cache, row, 0), live(wanted, row, 0)[:, :, : length - 1])


def test_a_decoder_with_a_window_reads_the_same_in_chunks():
    params = DECODER.init(0)
    cache, wanted = read(DECODER, params, TEXT, LENGTHS, CHUNK), whole(DECODER, params, TEXT)
    for row, length in enumerate(LENGTHS):
        for layer in range(2):
            found = live(cache, row, layer)
            np.testing.assert_allclose(found, live(wanted, row, layer)[:, :, : length - 1], atol=1e-5)


def test_what_lies_behind_a_prompt_does_not_matter():
    other = np.where(np.arange(SLOTS)[None] < np.array(LENGTHS)[:, None], TEXT, 6 - TEXT)
    found, wanted = (read(TABLE, None, text, LENGTHS, CHUNK) for text in (other, TEXT))
    for row in range(len(LENGTHS)):
        np.testing.assert_array_equal(live(found, row, 0), live(wanted, row, 0))


def test_a_prompt_is_the_same_beside_others():
    order = np.random.default_rng(1).permutation(len(LENGTHS))
    found = read(TABLE, None, TEXT[order], np.array(LENGTHS)[order], CHUNK)
    wanted = read(TABLE, None, TEXT, LENGTHS, CHUNK)
    for slot, row in enumerate(order):
        np.testing.assert_array_equal(live(found, slot, 0), live(wanted, row, 0))


def test_prompts_of_one_token_run_no_forward():
    class Silent(TableModel):
        def forward(self, *args, **options):
            out = super().forward(*args, **options)
            keys = tuple(jnp.full_like(key, jnp.nan) for key in out.cache.keys)
            return out._replace(cache=out.cache.replace(keys=keys))

    cache = read(Silent(7, max_length=SLOTS), None, TEXT, [1] * len(LENGTHS), CHUNK)
    assert not np.isnan(np.asarray(cache.keys[0])).any() and not cache.length.any()
