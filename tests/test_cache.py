"""The cache against plain attention over a list of tokens: lengths, ends, dead slots, windows, masks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import CacheSpec, KVCache

pytestmark = pytest.mark.usefixtures("quick_compile")
ROWS, SLOTS, QUERY_HEADS, HEADS, WIDTH = 3, 16, 4, 2, 8
SPEC = CacheSpec(layers=2, kv_heads=HEADS, head_dim=WIDTH)
RNG = np.random.default_rng(0)
SCALE = 0.3


def tokens(count: int, rows: int = ROWS) -> tuple[np.ndarray, ...]:
    """Random queries, keys and values ``[B, T, heads, H]``."""
    shapes = [(rows, count, heads, WIDTH) for heads in (QUERY_HEADS, HEADS, HEADS)]
    return tuple(RNG.normal(size=shape).astype(np.float32) for shape in shapes)


def reference(query, keys, values, visible, softcap=None) -> np.ndarray:
    """Attention of one row's queries ``[T, N, H]`` over a list ``[n, M, H]``, ``visible [T, n]``."""
    keys, values = (np.repeat(x, QUERY_HEADS // HEADS, 1).astype(np.float64) for x in (keys, values))
    scores = np.einsum("tnh,snh->nts", query.astype(np.float64), keys) * SCALE
    scores = scores if softcap is None else softcap * np.tanh(scores / softcap)
    weights = np.where(visible, np.exp(scores - scores.max()), 0)
    return np.einsum("nts,snh->tnh", weights / weights.sum(-1, keepdims=True), values)


@functools.partial(jax.jit, static_argnames=("layer", "window", "softcap"))
def jitted(cache, new, lengths, positions, mask, *, layer: int, window=None, softcap=None):
    cache = cache.with_length(lengths)
    return cache.attend(layer, *new, positions, mask, scale=SCALE, window=window, softcap=softcap)


def attend(cache: KVCache, new, lengths, mask=None, layer: int = 0, positions=None, **options):
    """Attends with new tokens behind ``lengths``."""
    lengths = np.array(lengths, np.int32)
    if positions is None:
        positions = lengths[:, None] + np.arange(new[0].shape[1])
    return jitted(cache, new, lengths, positions.astype(np.int32), mask, layer=layer, **options)


def filled(text) -> KVCache:
    """A cache that read the same number of tokens in every row, by layer 0."""
    return attend(KVCache.create(SPEC, ROWS, SLOTS), text, [0] * ROWS)[1]


@pytest.mark.parametrize("options", [{}, {"window": 3}, {"softcap": 0.5}])
def test_new_tokens_see_the_text_before_them_and_themselves(options):
    text, new, lengths = tokens(10), tokens(4), [2, 10, 7]
    out, cache = attend(filled(text), new, lengths, **options)
    for row, length in enumerate(lengths):
        keys, values = (np.concatenate([text[i][row, :length], new[i][row]]) for i in (1, 2))
        ahead = length + np.arange(4)[:, None] - np.arange(length + 4)
        visible = (ahead >= 0) & (ahead < options.get("window", 99))
        wanted = reference(new[0][row], keys, values, visible, options.get("softcap"))
        np.testing.assert_allclose(out[row], wanted, atol=1e-5)
        np.testing.assert_array_equal(np.swapaxes(cache.keys[0][row], 0, 1)[: length + 4], keys)
        np.testing.assert_array_equal(np.swapaxes(cache.values[0][row], 0, 1)[: length + 4], values)


def test_layers_are_apart_and_the_length_is_the_callers():
    text = tokens(5)
    cache = filled(text)
    assert cache.length.tolist() == [0] * ROWS
    _, after = attend(cache, tokens(2), [5, 3, 0], layer=1)
    assert after.length.tolist() == [5, 3, 0] and after.length.dtype == jnp.int32
    np.testing.assert_array_equal(after.keys[0], cache.keys[0])
    assert np.asarray(after.keys[1]).any() and not np.asarray(cache.keys[1]).any()


def test_slots_past_the_end_are_dropped_and_the_live_ones_stay():
    text, new = tokens(14), tokens(4)
    _, cache = attend(filled(text), new, [14, 10, 16])
    for row, length in enumerate([14, 10, 16]):
        kept = np.concatenate([text[1][row], np.zeros((2, HEADS, WIDTH), np.float32)])
        inside = min(SLOTS, length + 4)
        kept[length:inside] = new[1][row, : inside - length]
        np.testing.assert_array_equal(np.swapaxes(cache.keys[0][row], 0, 1), kept)


def test_tokens_past_the_end_leave_the_ones_inside_right():
    text, new = tokens(14), tokens(4)
    out, _ = attend(filled(text), new, [14] * ROWS)
    for row in range(ROWS):
        keys, values = (np.concatenate([text[i][row], new[i][row, :2]]) for i in (1, 2))
        visible = np.arange(16) <= 14 + np.arange(2)[:, None]
        np.testing.assert_allclose(out[row, :2], reference(new[0][row, :2], keys, values, visible), atol=1e-5)


@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30])
def test_rolled_back_tokens_leave_no_trace_whatever_they_held(garbage):
    text, new = tokens(6), tokens(2)
    clean = filled(text)
    wild = tuple(np.full_like(x, garbage) for x in tokens(5))
    _, dirty = attend(clean, wild, [6, 3, 1])
    lengths = [6, 3, 1]
    np.testing.assert_array_equal(attend(dirty, new, lengths)[0], attend(clean, new, lengths)[0])


@pytest.mark.parametrize("garbage", [np.nan, np.inf])
def test_a_broken_token_is_not_seen_by_those_before_it(garbage):
    text, new = tokens(6), tokens(3)
    broken = tuple(x.copy() for x in new)
    for x in broken:
        x[:, 2] = garbage
    wanted, _ = attend(filled(text), new, [6, 3, 1])
    found, _ = attend(filled(text), broken, [6, 3, 1])
    np.testing.assert_array_equal(found[:, :2], wanted[:, :2])


def test_branches_under_a_mask_equal_their_paths_one_by_one():
    # a tree of new tokens: 0 -> 1 -> 2 and 0 -> 3 -> 4, and 5 on its own behind the text
    parents = [None, 0, 1, 0, 3, None]
    paths = [[0], [0, 1], [0, 1, 2], [0, 3], [0, 3, 4], [5]]
    depth = np.array([len(path) - 1 for path in paths])
    mask = np.array([[seen in path for seen in range(6)] for path in paths])
    assert all(mask[i, parent] for i, parent in enumerate(parents) if parent is not None)
    text, new, lengths = tokens(8), tokens(6), [8, 5, 1]
    for options in ({}, {"window": 3}):
        positions = np.array(lengths)[:, None] + depth
        out, _ = attend(filled(text), new, lengths, mask, positions=positions, **options)
        several, _ = attend(
            filled(text), new, lengths, np.stack([mask] * ROWS), positions=positions, **options
        )
        np.testing.assert_array_equal(out, several)
        for token, path in enumerate(paths):
            alone, _ = attend(filled(text), tuple(x[:, path] for x in new), lengths, **options)
            np.testing.assert_allclose(out[:, token], alone[:, -1], atol=1e-6)


def test_rows_do_not_see_each_other():
    text, new = tokens(6), tokens(2)
    out, _ = attend(filled(text), new, [6, 2, 4])
    other = tuple(np.concatenate([x[:1], x[1:] + 1]) for x in text)
    again, _ = attend(filled(other), new, [6, 0, 1])
    np.testing.assert_array_equal(out[0], again[0])


def test_reading_one_by_one_equals_reading_at_once():
    new, cache = tokens(7), KVCache.create(SPEC, ROWS, SLOTS)
    whole, _ = attend(cache, new, [0] * ROWS)
    for t in range(7):
        one, cache = attend(cache, tuple(x[:, t : t + 1] for x in new), [t] * ROWS)
        np.testing.assert_allclose(one[:, 0], whole[:, t], atol=1e-6)


def test_buffers_have_the_dtype_of_the_model():
    spec = CacheSpec(layers=1, kv_heads=HEADS, head_dim=WIDTH, dtype="bfloat16")
    cache = KVCache.create(spec, ROWS, SLOTS)
    new = tuple(jnp.asarray(x, jnp.bfloat16) for x in tokens(2))
    out, cache = attend(cache, new, [0] * ROWS)
    assert out.dtype == cache.keys[0].dtype == cache.values[0].dtype == jnp.bfloat16
