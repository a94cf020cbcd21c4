"""Noise depends on seed, row and place alone, has the right law, and scripts keep their probability."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax.noise import KeyedNoise, Purpose, ScriptedNoise
from sbjax.scores import Sampling
from sbjax.verification import shared_noise

pytestmark = pytest.mark.usefixtures("quick_compile")
VOCAB, MANY = 7, 4096
create = jax.jit(KeyedNoise.create)


@functools.partial(jax.jit, static_argnums=2)
def gumbel(noise: KeyedNoise, positions, vocab_size: int) -> jax.Array:
    return shared_noise(noise, positions, vocab_size, Sampling.create(positions.shape[0], 1.0)).rows


def keyed(seeds, rows) -> KeyedNoise:
    return create(np.array(seeds, np.uint32), np.array(rows, np.uint32))


@jax.jit
def hashes(noise: KeyedNoise, tokens) -> jax.Array:
    """Raw keys ``[B, T + 1, 2]`` of the texts with 0 .. T tokens."""
    return jax.random.key_data(noise.extend(noise.start(), tokens))


@jax.jit
def draws(noise: KeyedNoise, weights) -> dict[Purpose, jax.Array]:
    """A draw for each purpose at the start of the text."""
    return {purpose: noise.draw(weights, noise.start(), purpose)[0] for purpose in Purpose}


@jax.jit
def verdicts(noise: KeyedNoise, p, q) -> jax.Array:
    """A test at the start of the text."""
    return noise.accept(p, q, noise.start(), Purpose.ACCEPT)[0]


def test_a_row_is_the_same_in_every_slot_and_batch():
    positions = np.array([[3, 4, 9]] * 4, np.int32)
    batch = np.asarray(gumbel(keyed([5, 5, 6, 5], [0, 1, 0, 7]), positions, VOCAB))
    turned = np.asarray(gumbel(keyed([5, 6, 5, 5], [7, 0, 1, 0]), positions, VOCAB))
    np.testing.assert_array_equal(batch, turned[[3, 2, 1, 0]])
    for slot, (seed, row) in enumerate(zip([5, 5, 6, 5], [0, 1, 0, 7], strict=True)):
        alone = gumbel(keyed([seed], [row]), positions[:1], VOCAB)[0]
        np.testing.assert_array_equal(batch[slot], alone)


def test_a_position_has_the_same_noise_wherever_it_lies_in_a_round():
    noise, places = keyed([1, 2, 2, 1], [0, 0, 5, 6]), np.arange(4, 10, dtype=np.int32)
    wide = np.asarray(gumbel(noise, np.stack([places[:3]] * 4), VOCAB))
    later = np.asarray(gumbel(noise, np.stack([places[2:5]] * 4), VOCAB))
    np.testing.assert_array_equal(wide[:, 2], later[:, 0])
    plain = shared_noise(noise, jnp.asarray(np.stack([places[:3]] * 4)), VOCAB, Sampling.create(4, 1.0))
    np.testing.assert_array_equal(wide, plain.rows)


def test_seed_row_position_and_token_all_matter():
    positions = np.arange(MANY, dtype=np.int32)[None].repeat(4, 0)
    numbers = np.asarray(gumbel(keyed([0, 0, 1, 2**32 - 1], [0, 1, 0, 2**32 - 1]), positions, 4))
    assert len(np.unique(numbers)) > 0.99 * numbers.size


def test_shared_noise_is_gumbel_noise():
    positions = np.arange(MANY, dtype=np.int32)[None].repeat(4, 0)
    numbers = np.sort(np.asarray(gumbel(keyed([3] * 4, range(4)), positions, 4)).ravel())
    law = np.exp(-np.exp(-numbers.astype(np.float64)))
    empirical = np.arange(1, len(numbers) + 1) / len(numbers)
    assert np.abs(law - empirical).max() < 1.63 / np.sqrt(len(numbers))  # Kolmogorov and Smirnov, 1 %


def test_neighbours_in_position_row_and_token_are_not_correlated():
    positions = np.arange(MANY, dtype=np.int32)[None].repeat(4, 0)
    first, second = np.asarray(gumbel(keyed([3] * 4, range(4)), positions, 4))[:2]
    pairs = {
        "position": (first[:-1, 0], first[1:, 0]),
        "row": (first[:, 0], second[:, 0]),
        "token": (first[:, 0], first[:, 1]),
    }
    for name, (a, b) in pairs.items():
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(len(a)), name


def test_hash_of_a_text_depends_on_all_of_it_and_nothing_else():
    noise = keyed([1, 1, 1, 2], [0, 0, 1, 0])
    found = np.asarray(hashes(noise, np.array([[3, 4], [4, 3], [3, 4], [3, 4]], np.int32)))
    assert len({row.tobytes() for row in found[:, 2]}) == 4
    assert (found[0, 0] == found[1, 0]).all() and (found[0, 1] != found[1, 1]).any()


def test_hash_of_a_text_does_not_depend_on_how_much_came_at_once():
    noise = keyed([1, 1, 1, 2], [0, 0, 1, 0])
    three, four = np.full((4, 1), 3, np.int32), np.full((4, 1), 4, np.int32)
    whole = noise.extend(noise.start(), jnp.asarray(np.concatenate([three, four], 1)))
    steps = noise.extend(noise.extend(noise.start(), jnp.asarray(three))[:, 1], jnp.asarray(four))
    np.testing.assert_array_equal(jax.random.key_data(whole[:, 2]), jax.random.key_data(steps[:, 1]))


def test_draws_follow_the_weights_and_never_take_weight_zero():
    weights = np.array([[3, 0, 1, 0, 4]] * MANY, np.float32)
    counts = np.bincount(draws(keyed([0] * MANY, range(MANY)), weights)[Purpose.EMIT], minlength=5)
    assert counts[1] == counts[3] == 0
    np.testing.assert_allclose(counts / MANY, [0.375, 0, 0.125, 0, 0.5], atol=4 * 0.5 / np.sqrt(MANY))


def test_purposes_are_independent():
    noise = keyed([0] * MANY, range(MANY))
    drawn = draws(noise, np.array([[1, 0, 0, 0, 1]] * MANY, np.float32))
    ones = np.ones(MANY, np.float32)
    columns = [drawn[Purpose.DRAFT], drawn[Purpose.EMIT], verdicts(noise, ones / 2, ones)]
    found = np.corrcoef(np.array([np.asarray(column, np.float64) for column in columns]))
    assert np.abs(found[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(MANY)


def test_tests_pass_with_the_ratio_as_their_chance():
    noise, ones = keyed([0] * MANY, range(MANY)), np.ones(MANY, np.float32)
    assert abs(np.asarray(verdicts(noise, 0.2 * ones, 0.5 * ones)).mean() - 0.4) < 4 * 0.5 / np.sqrt(MANY)
    assert np.asarray(verdicts(noise, 0.5 * ones, 0.2 * ones)).all()
    assert np.asarray(verdicts(noise, 0.5 * ones, 0.5 * ones)).all()


def test_a_token_that_the_target_excludes_is_refused_even_at_zero_chance(monkeypatch):
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    noise = keyed([0] * 4, range(4))
    p, q = jnp.array([0.0, 1e-30, 0.0, 1.0]), jnp.array([1.0, 1.0, 0.0, 0.0])
    assert noise.accept(p, q, noise.start(), Purpose.ACCEPT)[0].tolist() == [False, True, False, True]


def test_scripts_multiply_the_probabilities_of_what_they_say():
    noise = ScriptedNoise.create(jnp.array([[2, 0, 1], [0, 1, 0], [1, 0, 0]], jnp.int32))
    weights, text = jnp.array([[1.0, 0.0, 3.0]] * 3), noise.start()
    token, noise = noise.draw(weights, text, Purpose.DRAFT)
    assert token.tolist() == [2, 0, 1]
    passed, noise = noise.accept(jnp.full(3, 0.3), jnp.full(3, 0.5), text, Purpose.ACCEPT)
    assert passed.tolist() == [True, False, True]
    np.testing.assert_allclose(noise.weight, [0.75 * 0.6, 0.25 * 0.4, 0], rtol=1e-6)
    _, noise = noise.draw(weights, text, Purpose.EMIT)
    np.testing.assert_allclose(noise.weight, [0, 0.25 * 0.4 * 0.25, 0], rtol=1e-6)


def test_scripts_that_end_or_say_what_cannot_be_weigh_nothing():
    noise = ScriptedNoise.create(jnp.array([[0], [2]], jnp.int32))
    _, noise = noise.accept(jnp.ones(2), jnp.ones(2), noise.start(), Purpose.ACCEPT)
    assert noise.weight.tolist() == [1, 0]
    _, noise = noise.draw(jnp.ones((2, 3)), noise.start(), Purpose.EMIT)
    assert noise.weight.tolist() == [0, 0]


def test_scripted_test_of_a_token_that_neither_model_has_is_a_refusal():
    noise = ScriptedNoise.create(jnp.array([[0], [1]], jnp.int32))
    _, noise = noise.accept(jnp.zeros(2), jnp.zeros(2), noise.start(), Purpose.ACCEPT)
    assert noise.weight.tolist() == [0, 1]
