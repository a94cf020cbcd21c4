"""Cuts, scores, picks and laws against independent references, row by row and on the edges."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kernels_pallas.verify import reference
from sbjax import scores as plain
from sbjax.scores import Sampling, alternatives, entropy, invalid, log_probability, pick
from sbjax.testing import next_law

cut, distribution, score = jax.jit(plain.cut), jax.jit(plain.distribution), jax.jit(plain.score)

VOCAB = 50
SETTINGS = [
    (0.0, 0, 1.0), (1.0, 0, 1.0), (1.0, 1, 1.0), (0.7, 5, 1.0), (1.7, 49, 1.0), (1.0, 50, 1.0),
    (1.0, 900, 1.0), (1.0, 0, 0.9), (2.0, 0, 0.3), (0.3, 0, 0.999), (1.0, 0, 1e-6), (0.8, 20, 0.95),
    (1.5, 7, 0.5), (0.0, 3, 0.5), (1e-3, 10, 0.9), (30.0, 40, 0.7),
]  # fmt: skip


def sampling(*rows) -> Sampling:
    """Settings of rows given as (temperature, top_k, top_p)."""
    temperature, top_k, top_p = zip(*rows, strict=True)
    return Sampling.create(len(rows), temperature, top_k, top_p)


def random_logits(rows: int, seed: int = 0, scale: float = 3.0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=(rows, 1, VOCAB)) * scale, jnp.float32)


def support(logits, setting) -> list[int]:
    """What is left of one row of logits."""
    kept = cut(jnp.array(logits, jnp.float32)[None, None], sampling(setting))
    return np.flatnonzero(np.isfinite(np.asarray(kept)[0, 0])).tolist()


@pytest.mark.parametrize("seed", range(6))
def test_laws_equal_a_sorting_reference(seed):
    logits = random_logits(len(SETTINGS), seed)
    if seed % 2:  # columns that the model itself excludes
        logits = logits.at[:, :, ::3].set(-jnp.inf)
    laws = np.asarray(distribution(logits, sampling(*SETTINGS)))[:, 0]
    for row, setting in enumerate(SETTINGS):
        np.testing.assert_allclose(
            laws[row], next_law(logits[row, 0], *setting), atol=2e-6, err_msg=str(setting)
        )
    np.testing.assert_allclose(laws.sum(-1), 1, atol=1e-6)


def test_cut_keeps_the_reference_tokens_and_leaves_their_logits_alone():
    rows = [(t, k, p) for t in (0.5, 1.0, 1.6) for k in (0, 1, 6, 30) for p in (1.0, 0.95, 0.6, 0.1)]
    logits = random_logits(len(rows), 11)
    kept = np.asarray(cut(logits, sampling(*rows)))[:, 0]
    for row, setting in enumerate(rows):
        wanted = next_law(logits[row, 0], *setting) > 0
        np.testing.assert_array_equal(
            kept[row], np.where(wanted, logits[row, 0], -np.inf), err_msg=str(setting)
        )


@pytest.mark.parametrize("scale", [0.1, 1.0, 6.0], ids=["flat", "broad", "peaked"])
def test_more_tokens_stay_than_are_looked_at_first(scale):
    """Flat rows keep more than the best few, whose ties may reach past them too; both ways answer alike."""
    vocab = 3 * reference.BEST
    settings = [(0.7, 0, 0.95), (1.0, reference.BEST + 9, 1.0), (1.0, 40, 0.5), (1.3, reference.BEST, 0.9)]
    draw = scale * np.random.default_rng(int(10 * scale)).standard_normal((len(settings), 1, vocab))
    logits = jnp.asarray(np.round(draw, 1) if scale == 1.0 else draw, jnp.float32)
    kept = np.asarray(cut(logits, sampling(*settings)))[:, 0] > -np.inf
    for row, setting in enumerate(settings):
        np.testing.assert_array_equal(kept[row], next_law(logits[row, 0], *setting) > 0, err_msg=str(setting))
    assert (kept[0].sum() > reference.BEST) == (scale < 6)


def test_order_of_the_cuts_is_that_of_transformers():
    import torch
    from transformers.generation import logits_process as hf

    rows = [(t, k, p) for t in (0.6, 1.0, 2.0) for k in (3, 8, 40) for p in (0.4, 0.9, 0.99)]
    logits = random_logits(len(rows), 5)
    kept = np.isfinite(np.asarray(cut(logits, sampling(*rows))))[:, 0]
    for row, (temperature, top_k, top_p) in enumerate(rows):
        scores = torch.tensor(np.asarray(logits[row]))
        for warper in (
            hf.TemperatureLogitsWarper(temperature), hf.TopKLogitsWarper(top_k), hf.TopPLogitsWarper(top_p)
        ):  # fmt: skip
            scores = warper(None, scores)
        np.testing.assert_array_equal(kept[row], np.isfinite(scores[0].numpy()), err_msg=str(rows[row]))


def test_temperature_comes_before_the_nucleus():
    assert support([2, 1, 0], (2.0, 0, 0.9)) == [0, 1, 2]  # the other order keeps two
    assert support([2, 1, 0], (1.0, 0, 0.9)) == [0, 1]


def test_top_k_comes_before_the_nucleus():
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    assert support(logits, (1.0, 0, 0.75)) == [0, 1, 2]
    assert support(logits, (1.0, 2, 0.75)) == [0, 1]
    assert support(logits, (1.0, 2, 0.5)) == [0]  # 4/7 of what top-k left


def test_ties_with_the_last_kept_token_are_kept():
    assert support([3, 1, 2, 2, 2, 0], (1.0, 2, 1.0)) == [0, 2, 3, 4]
    assert support(np.log([0.4, 0.2, 0.2, 0.2]), (1.0, 0, 0.5)) == [0, 1, 2, 3]
    assert support([0.0, -0.0, -1.0], (1.0, 1, 1.0)) == [0, 1]


def test_the_best_token_survives_every_nucleus():
    for top_p in (1e-6, 1e-30, 1e-44, 5e-324):
        assert support([0, 2, 1], (1.0, 0, top_p)) == [1]


def test_excluded_columns_never_come_back():
    logits = [-np.inf, 1.0, -np.inf, 0.0]
    for setting in ((1.0, 3, 1.0), (1.0, 4, 0.9999), (1.0, 0, 0.9999), (5.0, 900, 1.0)):
        assert support(logits, setting) == [1, 3]


def test_rows_without_wishes_and_greedy_rows_are_left_alone_in_a_mixed_batch():
    logits = random_logits(3)
    kept = cut(logits, sampling((1.0, 0, 1.0), (0.0, 2, 0.1), (1.0, 2, 1.0)))
    np.testing.assert_array_equal(kept[:2], logits[:2])
    assert np.isfinite(np.asarray(kept[2])).sum() == 2


def test_a_row_does_not_depend_on_its_neighbours():
    logits = random_logits(len(SETTINGS), 3).repeat(4, 1)
    noise = random_logits(len(SETTINGS), 4).repeat(4, 1)
    batch = sampling(*SETTINGS)
    found, laws = score(logits, noise, batch), distribution(logits, batch)
    for row, setting in enumerate(SETTINGS):
        one = slice(row, row + 1)
        alone = sampling(setting)
        np.testing.assert_array_equal(found[one], score(logits[one], noise[one], alone), err_msg=str(setting))
        np.testing.assert_array_equal(laws[one], distribution(logits[one], alone), err_msg=str(setting))


def test_a_score_is_the_logit_plus_temperature_times_noise():
    logits, noise = random_logits(2), random_logits(2, 1)
    found = score(logits, noise, sampling((0.0, 0, 1.0), (0.7, 0, 1.0)))
    np.testing.assert_array_equal(found[0], logits[0])
    np.testing.assert_allclose(found[1], logits[1] + np.float32(0.7) * noise[1], rtol=1e-6)


def test_picks_follow_the_law():
    draws = 20000
    noise = jax.random.gumbel(jax.random.key(0), (1, draws, 4), jnp.float32)
    logits = jnp.array([1.0, 0.5, -1.0, 0.9])
    setting = (0.8, 3, 0.95)
    scores = score(jnp.broadcast_to(logits, (1, draws, 4)), noise, sampling(setting))
    counts = np.bincount(np.asarray(pick(scores))[0], minlength=4)
    np.testing.assert_allclose(counts / draws, next_law(logits, *setting), atol=4 * 0.5 / np.sqrt(draws))


def test_one_candidate_is_the_greedy_one():
    logits, noise = random_logits(8, 2), random_logits(8, 9, 10.0)
    best = np.asarray(logits).argmax(-1)
    for setting in ((1.0, 1, 1.0), (1.0, 0, 1e-6), (0.0, 0, 1.0), (0.0, 5, 0.5)):
        np.testing.assert_array_equal(pick(score(logits, noise, sampling(*[setting] * 8))), best)


def test_picks_are_the_first_of_the_best():
    rows = jnp.array([[1.0, 3.0, 3.0, 2.0], [0.0, -0.0, -1.0, 0.0], [-jnp.inf, 2.0, 2.0, 2.0], [5.0] * 4])
    assert pick(rows).tolist() == [1, 0, 1, 0]
    assert pick(jnp.full((1, 4), -jnp.inf)).tolist() == [0]
    random = random_logits(6, 1)
    np.testing.assert_array_equal(pick(random), np.asarray(random).argmax(-1))


def test_picks_of_rows_with_nan_stay_inside_the_vocabulary():
    rows = jnp.array([[jnp.nan, 1.0, 2.0], [jnp.nan] * 3])
    assert all(0 <= index < 3 for index in pick(rows).tolist())


def test_rows_that_cannot_be_used_are_told():
    inf, nan = jnp.inf, jnp.nan
    rows = jnp.array([[0, 1.0], [nan, 1], [1, nan], [inf, 0], [-inf, 0], [-inf, -inf], [inf, -inf]])
    assert invalid(rows).tolist() == [False, True, True, True, False, True, True]


@pytest.mark.parametrize("shape", [(1, 1000), (64, 100), (4096, 3)])
def test_one_bad_entry_is_found_anywhere_in_a_row(shape):
    rng, rows = np.random.default_rng(0), np.arange(shape[0])
    for bad in (np.nan, np.inf):
        logits = rng.normal(size=shape).astype(np.float32)
        logits[rows[::2], rng.integers(0, shape[1], shape[0])[::2]] = bad
        np.testing.assert_array_equal(jax.jit(invalid)(logits), rows % 2 == 0)


def confidence(scores):
    """What ``alternatives`` says of the pick."""
    return alternatives(scores, pick(scores), 0)[0]


def test_confidence_is_the_softmax_at_the_pick():
    scores = random_logits(5)
    reference = jax.nn.softmax(scores, -1).max(-1)
    np.testing.assert_allclose(confidence(scores), reference, rtol=1e-6)
    assert confidence(jnp.array([0.0, -jnp.inf, 0.0])).item() == 0.5


def test_alternatives_are_the_best_other_tokens_with_their_probabilities():
    scores = np.array(random_logits(4))
    scores[0, 0, 3:] = -np.inf  # a cut row: two others are left
    token = np.array(pick(jnp.asarray(scores)))
    token[1, 0] = 7  # under the other rules the token need not be the best
    found, ids, chances = alternatives(jnp.asarray(scores), jnp.asarray(token), 4)
    law = np.exp(scores - scores.max(-1, keepdims=True))
    law = law / law.sum(-1, keepdims=True)
    for row in np.ndindex(scores.shape[:2]):
        np.testing.assert_allclose(found[row], law[row][token[row]], rtol=1e-5)
        order = [i for i in np.argsort(-scores[row], kind="stable") if i != token[row] and law[row][i] > 0]
        wanted = (order + [-1] * 4)[:4]
        assert ids[row].tolist() == wanted
        np.testing.assert_allclose(chances[row], [law[row][i] if i >= 0 else 0 for i in wanted], rtol=1e-5)


def test_alternatives_of_a_small_vocabulary_are_filled_up():
    _, ids, chances = alternatives(jnp.array([[0.0, 1.0, 1.0]]), jnp.array([1], jnp.int32), 5)
    assert ids.tolist() == [[2, 0, -1, -1, -1]] and not chances[0, 2:].any()


def test_entropy_is_in_nats_and_knows_cut_rows():
    scores = random_logits(6)
    law = np.asarray(jax.nn.softmax(scores, -1), np.float64)
    np.testing.assert_allclose(entropy(scores), -(law * np.log(law)).sum(-1), rtol=1e-5)
    flat = jnp.where(jnp.arange(8) < 4, 2.5, -jnp.inf)
    assert entropy(flat).item() == pytest.approx(np.log(4), rel=1e-6)


def test_log_probabilities_know_no_settings():
    logits, tokens = random_logits(3), jnp.array([[4], [0], [49]], jnp.int32)
    reference = np.log([next_law(logits[row, 0])[token] for row, token in enumerate([4, 0, 49])])
    np.testing.assert_allclose(log_probability(logits, tokens)[:, 0], reference, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")),
        ("temperature", 1e39), ("temperature", True), ("temperature", "1"), ("temperature", None),
        ("temperature", [1.0]), ("temperature", [1.0, 1.0, 1.0]), ("temperature", [[1.0, 1.0]]),
        ("temperature", [1.0, -1.0]), ("temperature", [0.5, float("nan")]),
        ("top_k", -1), ("top_k", 1.5), ("top_k", float("nan")), ("top_k", True), ("top_k", [3]),
        ("top_k", [3, -3]), ("top_p", 0), ("top_p", 0.0), ("top_p", -0.5), ("top_p", 1.01),
        ("top_p", float("nan")), ("top_p", True), ("top_p", [0.5]), ("top_p", [0.5, 0.0]),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name):
        Sampling.create(2, **{name: value})


def test_settings_may_be_one_number_or_one_a_row():
    found = Sampling.create(2, 0.5, [0, 7], np.float64(0.9))
    assert found.temperature.tolist() == [0.5, 0.5] and found.temperature.dtype == jnp.float32
    assert found.top_k.tolist() == [0, 7] and found.top_k.dtype == jnp.int32
    np.testing.assert_allclose(found.top_p, [0.9, 0.9])
    assert Sampling.create(1, top_k=3.0).top_k.tolist() == [3]


def test_a_very_large_top_k_keeps_everything():
    logits = random_logits(1)[0, 0]
    for top_k in (2**31 - 1, 2**31, 2**32 + 1, 2**40):
        assert len(support(logits, (1.0, top_k, 1.0))) == VOCAB
