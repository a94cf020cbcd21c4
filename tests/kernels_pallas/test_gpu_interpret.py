"""The GPU kernels under jax's interpreter: copies, barriers, masks, merges. Products are plain dots there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import gpu
from kernels_pallas.adopt import mosaic_gpu as gpu_adopt
from kernels_pallas.adopt import reference as plain_adopt
from kernels_pallas.branch_attention import mosaic_gpu as gpu_attention
from kernels_pallas.branch_attention import reference as plain_attention
from kernels_pallas.verify import mosaic_gpu as gpu_verify
from kernels_pallas.verify import reference as plain_verify

pytestmark = pytest.mark.usefixtures("quick_compile")


def _attention_inputs(dtype, rows, tokens, heads, groups, slots, width, own, seed):
    rng = np.random.default_rng(seed)

    def draw(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32).astype(dtype)

    query = draw(rows, tokens, heads * groups, width)
    prefix = [draw(rows, heads, slots, width) for _ in range(2)]
    new = [draw(rows, heads, own, width) for _ in range(2)]
    visible = jnp.asarray(rng.random((rows, tokens, own)) < 0.5).at[:, :, 0].set(True)
    return query, prefix, new, visible


def _dirty(prefix, start, end):
    """NaN and infinity where no query of a row looks."""
    slot = np.arange(prefix.shape[2])[None]
    sees = np.asarray(start) < np.asarray(end)
    low = np.where(sees, start, prefix.shape[2]).min(1, keepdims=True)
    high = np.where(sees, end, 0).max(1, keepdims=True)
    dead = jnp.asarray((slot < low) | (slot >= high))[:, None, :, None]
    filth = jnp.where(jnp.arange(prefix.shape[3]) % 2 == 0, jnp.nan, jnp.inf).astype(prefix.dtype)
    return jnp.where(dead, filth[None, None, None], prefix)


def _close(dtype, end, start, *, blocks, shape, seed, **settings):
    query, prefix, new, visible = _attention_inputs(dtype, **shape, seed=seed)
    floats = [x.astype(jnp.float32) for x in (query, *prefix, *new)]
    expected = plain_attention.attention(*floats[:3], start, end, *floats[3:], visible, **settings)
    window = jnp.zeros_like(end) if start is None else start
    dirty = [_dirty(x, window, end) for x in prefix]
    assert not jnp.isfinite(dirty[1].astype(jnp.float32)).all()
    run = jax.jit(
        lambda *x: gpu_attention.attention(*x, blocks=blocks, interpret=gpu.simulated(), **settings)
    )
    found = run(query, *dirty, start, end, *new, visible)
    assert found.dtype == dtype
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, atol=1e-2, rtol=1e-2)


def test_attention_of_ragged_rows_with_a_window():
    # One query looks at no slot, one row begins inside a block and one ends with the buffer.
    end = jnp.array([[70, 200, 0], [256, 130, 129]], jnp.int32)
    start = jnp.array([[69, 40, 0], [128, 129, 65]], jnp.int32)
    shape = {"rows": 2, "tokens": 3, "heads": 2, "groups": 2, "slots": 256, "width": 64, "own": 5}
    blocks = gpu_attention.Blocks(splits=3)
    _close(jnp.bfloat16, end, start, blocks=blocks, shape=shape, seed=1, scale=0.125)


def test_attention_of_many_queries_with_a_softcap():
    # 66 queries are two tiles; the second row has no text at all.
    end = jnp.array([list(range(90, 123)), [0] * 33], jnp.int32)
    shape = {"rows": 2, "tokens": 33, "heads": 1, "groups": 2, "slots": 128, "width": 128, "own": 2}
    blocks = gpu_attention.Blocks(splits=1, stages=3)
    _close(jnp.float16, end, None, blocks=blocks, shape=shape, seed=2, scale=0.3, softcap=8.0)


def _logits(rows, tokens, columns, seed):
    key = jax.random.key(seed)
    logits = 3 * jax.random.normal(key, (rows, tokens, columns), jnp.float32)
    keys = jax.random.key_data(jax.random.split(jax.random.fold_in(key, 1), (rows, tokens)))
    return logits, keys


def _same(found, expected):
    np.testing.assert_array_equal(found.token, expected.token)
    np.testing.assert_array_equal(found.invalid, expected.invalid)
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-6)


def test_picks_are_those_of_the_reference():
    # 2,208 logits are two pieces and a bit, 2,001 of them count; temperatures are mixed.
    logits, keys = _logits(2, 2, 2208, 3)
    logits = logits.at[0, 1, [700, 705, 1500]].set(40.0)
    settings = jnp.array([0.0, 0.9]), jnp.zeros(2, jnp.int32), jnp.ones(2)
    expected = plain_verify.picks(logits[..., :2001], keys, *settings, log_probs=True)
    dirty = logits.at[..., 2001:].set(jnp.nan)
    found = jax.jit(
        lambda *x: gpu_verify.picks(*x, vocab_size=2001, log_probs=True, interpret=gpu.simulated())
    )(dirty, keys, *settings)
    _same(found, expected)
    np.testing.assert_allclose(found.log_prob, expected.log_prob, rtol=1e-5)
    assert expected.token[0, 1] == 700


def test_picks_of_cut_and_of_invalid_rows_under_given_noise():
    logits, keys = _logits(3, 1, 1024, 4)
    logits = logits.at[1, 0, 5].set(jnp.nan).at[2, 0].set(-jnp.inf)
    heat, count, share = jnp.ones(3), jnp.zeros(3, jnp.int32), jnp.ones(3)
    noise = plain_verify.gumbel(keys, 1024, heat)
    run = jax.jit(lambda *x: gpu_verify.picks(*x[:-1], noise=x[-1], interpret=gpu.simulated()))
    found = run(logits, keys, heat, count, share, noise)
    assert found.invalid[:, 0].tolist() == [False, True, True]
    assert ((found.token >= 0) & (found.token < 1024)).all()
    uncut = found.token[0, 0]
    for cut in ((jnp.full(3, 2, jnp.int32), share), (count, jnp.array([0.2, 1.0, 1.0]))):
        found = run(logits, keys, heat, *cut, noise)
        expected = plain_verify.picks(logits, keys, heat, *cut, noise=noise)
        assert found.invalid.tolist() == expected.invalid.tolist()
        assert found.token[0, 0] == expected.token[0, 0] != uncut


def test_adopt_writes_and_drops():
    rng = np.random.default_rng(5)
    old = [jnp.asarray(rng.normal(size=(3, 2, 32, 32)), jnp.bfloat16) for _ in range(2)]
    new = [jnp.asarray(rng.normal(size=(3, 2, 4, 32)), jnp.bfloat16) for _ in range(2)]
    start = jnp.array([0, 13, 30], jnp.int32)
    found = jax.jit(lambda *x: gpu_adopt.adopt(*x, interpret=gpu.simulated()))(*old, *new, start)
    for a, b in zip(found, plain_adopt.adopt(*old, *new, start), strict=True):
        np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))
    assert not np.array_equal(found[0][0, :, :4], old[0][0, :, :4])
