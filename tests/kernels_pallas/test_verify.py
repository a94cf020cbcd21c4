"""The TPU version of ``verify`` against its specification, on CPU: interpreted, and as a simulated TPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas import tpu
from kernels_pallas.verify import mosaic_tpu, reference

pytestmark = pytest.mark.usefixtures("quick_compile")

CHUNK = 512
SETTINGS = (  # temperature, top-k, top-p
    (0.0, 5, 0.5),
    (0.7, 0, 1.0),
    (1.6, 20, 1.0),
    (0.7, 0, 0.9),
    (1.6, 40, 0.6),
    (0.7, 1, 1.0),
    (1.6, 0, 0.0),
    (0.7, 10**6, 0.95),
)


@functools.partial(jax.jit, static_argnames=("log_probs", "vocab_size", "chunk", "interpret"))
def kernel(*inputs, interpret=True, chunk=CHUNK, **options):
    return mosaic_tpu.picks(*inputs, interpret=interpret, chunk=chunk, **options)


@jax.jit
def kernel_part(*inputs, **options):
    return mosaic_tpu.part(*inputs, log_probs=True, interpret=True, chunk=CHUNK, **options)


expected = jax.jit(functools.partial(reference.picks, log_probs=True))
combine = jax.jit(mosaic_tpu.combine)


def drawn(seed, batch, length, vocab, settings=SETTINGS):
    """Fresh logits and keys; row i has the settings i + seed."""
    random = np.random.default_rng([seed, batch, length, vocab])
    logits = random.normal(size=(batch, length, vocab)).astype(np.float32) * random.choice([1.0, 4.0])
    keys = random.integers(0, 2**32, (batch, length, 2), dtype=np.uint32)
    rows = [settings[(seed + i) % len(settings)] for i in range(batch)]
    types = (np.float32, np.int32, np.float32)
    columns = (np.array(x, t) for x, t in zip(zip(*rows, strict=True), types, strict=True))
    return tuple(map(jnp.asarray, (logits.astype(np.float32), keys, *columns)))


def assert_same(ours, theirs):
    """Valid rows agree in everything, others in being invalid."""
    ours, theirs = jax.tree.map(np.asarray, (ours, theirs))
    np.testing.assert_array_equal(ours.invalid, theirs.invalid)
    valid = ~theirs.invalid
    np.testing.assert_array_equal(ours.token[valid], theirs.token[valid])
    np.testing.assert_allclose(ours.score[valid], theirs.score[valid], rtol=1e-6, atol=1e-6)
    if ours.log_prob is not None:
        np.testing.assert_allclose(ours.log_prob[valid], theirs.log_prob[valid], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("length", "vocab", "chunk"),
    [(1, 32, 512), (8, 1000, 512), (3, 1337, 512), (16, 4096, 512), (8, 20_011, 1024)],
)
def test_picks_are_those_of_the_reference(length, vocab, chunk):
    for seed in range(3):
        inputs = drawn(seed, 3, length, vocab)
        assert_same(kernel(*inputs, log_probs=True, chunk=chunk), expected(*inputs))


def test_every_setting_by_itself():
    for seed, setting in enumerate(SETTINGS):
        inputs = drawn(seed, 3, 3, 1337, [setting])
        assert_same(kernel(*inputs, log_probs=True), expected(*inputs))


def test_log_probs_only_when_asked():
    inputs = drawn(9, 3, 1, 32)
    ours = kernel(*inputs)
    assert ours.log_prob is None
    assert_same(ours, expected(*inputs))


def test_the_chunk_changes_no_bit():
    inputs = drawn(5, 3, 3, 1337)
    results = [kernel(*inputs, log_probs=True, chunk=chunk) for chunk in (512, 1024, 2048)]
    assert_same(results[0], expected(*inputs))
    for other in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, results[0], other)


def test_on_a_simulated_tpu():
    # Nine lines: the second block is all but empty, and what lies outside of the array is NaN.
    for seed in range(2):
        inputs = drawn(seed, 3, 3, 700)
        assert_same(kernel(*inputs, log_probs=True, interpret=tpu.simulated()), expected(*inputs))


def test_columns_past_the_vocabulary_do_not_count():
    logits, *rest = drawn(1, 3, 3, 1337)
    padded = jnp.pad(logits, ((0, 0), (0, 0), (0, 200)), constant_values=jnp.nan)
    assert_same(kernel(padded, *rest, log_probs=True, vocab_size=1337), expected(logits, *rest))


@jax.jit
def least_kept(*inputs):
    kept = reference.cut(*inputs)
    return jnp.where(kept > -jnp.inf, kept, jnp.inf).min(-1)


def shards(inputs, bounds):
    """The parts of a vocabulary that is split at ``bounds``."""
    logits, keys, *settings = inputs
    thresholds = least_kept(logits, *settings)
    ends = (*bounds, logits.shape[-1])
    return [
        kernel_part(logits[..., a:b], keys, *settings, first=jnp.int32(a), thresholds=thresholds)
        for a, b in zip((0, *bounds), ends, strict=True)
    ]


@pytest.mark.parametrize(("vocab", "bounds"), [(1337, (600,)), (1337, (137, 737))])
def test_shards_of_the_vocabulary_combine(vocab, bounds):
    for seed in range(4):
        inputs = drawn(seed, 3, 3, vocab)
        parts = shards(inputs, bounds)
        assert_same(combine(parts), expected(*inputs))
        assert_same(combine(parts[::-1]), expected(*inputs))
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *parts)
        jax.tree.map(np.testing.assert_array_equal, combine(stacked), combine(parts))


def test_shards_without_log_probs_combine_to_none():
    inputs = drawn(2, 3, 3, 1337)
    parts = [part._replace(logit=None, log_sum=None) for part in shards(inputs, (600,))]
    combined = combine(parts)
    assert combined.log_prob is None
    assert_same(combined, expected(*inputs))


def test_ties_go_to_the_smallest_index_and_are_kept_together():
    for seed in range(4):
        logits, *rest = drawn(seed, 3, 3, 1337)
        inputs = jnp.round(logits), *rest
        theirs = expected(*inputs)
        assert_same(kernel(*inputs, log_probs=True), theirs)
        assert_same(combine(shards(inputs, (600,))), theirs)
    logits, *rest = drawn(0, 3, 3, 1337, [(0.0, 0, 1.0)])
    flat = jnp.zeros_like(logits), *rest
    assert np.all(np.asarray(kernel(*flat, log_probs=True).token) == 0)
    assert np.all(np.asarray(combine(shards(flat, (600,))).token) == 0)


def spoil(inputs, vocab):
    """Rows 0 to 2 of nine lines: NaN, plus infinity, nothing finite; one token left; the others stay."""
    logits = np.array(inputs[0])
    logits[0, 0, vocab - 1] = np.nan
    logits[0, 1, 3] = np.inf
    logits[1, 0] = -np.inf
    logits[1, 1, : vocab - 2] = -np.inf
    logits[2, 0, 5:] = -np.inf
    logits[2, 1] = np.nan
    return jnp.asarray(logits), *inputs[1:]


def test_rows_that_are_not_numbers():
    for seed in range(4):
        inputs = spoil(drawn(seed, 3, 3, 1337), 1337)
        theirs = expected(*inputs)
        assert np.asarray(theirs.invalid).sum() == 4
        ours = kernel(*inputs, log_probs=True)
        assert_same(ours, theirs)
        assert np.all((np.asarray(ours.token) >= 0) & (np.asarray(ours.token) < 1337))


def test_shards_that_are_not_numbers():
    for seed in range(4):
        inputs = spoil(drawn(seed, 3, 3, 1337), 1337)
        parts = shards(inputs, (600,))
        assert np.asarray(parts[0].invalid)[1, 1], "the first shard of this row holds nothing finite"
        ours = combine(parts)
        assert_same(ours, expected(*inputs))
        assert np.all((np.asarray(ours.token) >= 0) & (np.asarray(ours.token) < 1337))


def test_a_draw_follows_its_key_and_nothing_else():
    logits, keys, *settings = drawn(3, 3, 3, 1337, [(1.6, 0, 1.0)])
    alike = jnp.broadcast_to(logits[:1, :1], logits.shape), jnp.broadcast_to(keys[:1, :1], keys.shape)
    assert len(np.unique(kernel(*alike, *settings, log_probs=True).token)) == 1
    assert len(np.unique(kernel(alike[0], keys, *settings, log_probs=True).token)) > 3


@pytest.mark.parametrize(
    ("shape", "dtype", "vocab_size", "why"),
    [
        ((1, 2, 32), jnp.bfloat16, None, "float32"),
        ((2, 32), jnp.float32, None, r"\[B, T, V\]"),
        ((1, 0, 32), jnp.float32, None, "nothing"),
        ((1, 2, 32), jnp.float32, 33, "32 columns"),
        ((1, 2, 600_000), jnp.float32, None, "VMEM"),
    ],
)
def test_refusals(shape, dtype, vocab_size, why):
    logits = jax.ShapeDtypeStruct(shape, dtype)
    with pytest.raises(ValueError, match=why):
        jax.eval_shape(functools.partial(kernel, vocab_size=vocab_size), logits, *drawn(0, 1, 2, 4)[1:])


def test_what_is_refused_and_what_not():
    assert mosaic_tpu.refusal(jax.ShapeDtypeStruct((8, 16, 262_144), jnp.float32)) is None
    with jax.threefry_partitionable(False):
        assert "partitionable" in mosaic_tpu.refusal(jnp.zeros((1, 1, 32)))
    with pytest.raises(ValueError, match="multiple of 512"):
        kernel(*drawn(0, 1, 1, 32), chunk=100)
