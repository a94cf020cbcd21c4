"""The three rules on single verifications, against an independent statement of each rule in numpy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax.noise import KeyedNoise, ScriptedNoise
from sbjax.scores import Sampling
from sbjax.verification import Trunk, choose, match, shared_noise, verify

pytestmark = pytest.mark.usefixtures("quick_compile")
G, V = 3, 3
TRUNKS = list(itertools.product(range(V), repeat=G))
SCRIPTS = list(itertools.product(*[range(2)] * G, range(V)))


def random_laws(rows: int, seed: int) -> np.ndarray:
    laws = np.random.default_rng(seed).gamma(0.7, size=(rows, V)) + 1e-3
    return (laws / laws.sum(-1, keepdims=True)).astype(np.float32)


def normed(rest: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    return rest / rest.sum() if rest.sum() > 0 else otherwise


def token_rule(p, q, tokens) -> dict[tuple[int, int], float]:
    """Probability of every outcome (accepted, next token), as Leviathan et al. and Chen et al. state it."""
    law, reached = {}, 1.0
    for i, token in enumerate(tokens):
        chance = min(1.0, p[i, token] / q[i, token])
        rest = normed(np.maximum(p[i] - q[i], 0), p[i])
        law |= {(i, y): reached * (1 - chance) * rest[y] for y in range(V)}
        reached *= chance
    return law | {(len(tokens), y): reached * p[len(tokens), y] for y in range(V)}


def block_rule(p, q, tokens) -> dict[tuple[int, int], float]:
    """The same for block verification: independent tests, the last one that passes counts."""
    n, weight = len(tokens), [1.0]
    for i, token in enumerate(tokens):
        weight.append(min(1.0, weight[-1] * p[i, token] / q[i, token]))
    chance = [1.0]
    for i in range(1, n):
        rest = np.maximum(weight[i] * p[i] - q[i], 0).sum()
        chance.append(rest / (rest + 1 - weight[i]) if rest + 1 - weight[i] > 0 else 1.0)
    if n:
        chance.append(weight[n])
    law = {}
    for i in range(n + 1):
        last = chance[i] * np.prod([1 - c for c in chance[i + 1 :]])
        rest = p[n] if i == n else normed(np.maximum(weight[i] * p[i] - q[i], 0), p[i])
        law |= {(i, y): last * rest[y] for y in range(V)}
    return law


REFERENCES = {"token": token_rule, "block": block_rule}
scripted = jax.jit(verify, static_argnums=0)


def outcomes(rule: str, p, q, temperature: float = 1.0) -> dict:
    """Weights of all outcomes of all trunks of all lengths, from one call of ``verify``."""
    cases = [(tokens, n) for tokens in TRUNKS for n in range(G + 1)]
    rows = len(cases) * len(SCRIPTS)
    tokens, lengths = (np.repeat(np.array(x, np.int32), len(SCRIPTS), 0) for x in zip(*cases, strict=True))
    logits = jnp.broadcast_to(jnp.log(p), (rows, G + 1, V))
    trunk = Trunk(jnp.asarray(tokens), jnp.asarray(lengths), jnp.broadcast_to(q, (rows, G, V)))
    noise = ScriptedNoise.create(jnp.asarray(np.tile(np.array(SCRIPTS, np.int32), (len(cases), 1))))
    outcome, noise = scripted(rule, logits, trunk, noise.start(), noise, Sampling.create(rows, temperature))
    law = {(*case, n, y): 0.0 for case in cases for n in range(G + 1) for y in range(V)}
    weights = np.asarray(noise.weight, np.float64)
    assert np.isfinite(weights).all()
    accepted, token = np.asarray(outcome.accepted).tolist(), np.asarray(outcome.token).tolist()
    for row in range(rows):
        law[(*cases[row // len(SCRIPTS)], accepted[row], token[row])] += weights[row]
    return law


def check(rule: str, p: np.ndarray, q: np.ndarray) -> None:
    found = outcomes(rule, jnp.asarray(p), jnp.asarray(q))
    for tokens in TRUNKS:
        for n in range(G + 1):
            if all(q[i, token] > 0 for i, token in enumerate(tokens[:n])):  # it could be drawn
                wanted = REFERENCES[rule](p.astype(np.float64), q.astype(np.float64), tokens[:n])
                for (accepted, y), chance in wanted.items():
                    assert found[tokens, n, accepted, y] == pytest.approx(chance, abs=2e-6), (
                        tokens,
                        n,
                        accepted,
                        y,
                    )


@pytest.mark.parametrize("rule", ["token", "block"])
def test_outcomes_have_the_probabilities_of_the_papers(rule):
    p, q = random_laws(G + 1, 0), random_laws(G, 1)
    check(rule, p, q)
    p[1], q[1] = q[1], q[1].copy()  # equal rows: nothing is left behind a refusal
    p[2], q[2] = [0.5, 0.5, 0], [1, 0, 0]  # a residual on one token
    check(rule, p, q)
    p[0], q[0] = [0, 1, 0], [0.5, 0, 0.5]  # nothing in common
    check(rule, p, q)


def test_the_block_rule_accepts_more_than_the_token_rule_of_the_same_rows():
    p, q = random_laws(G + 1, 0).astype(np.float64), random_laws(G, 1).astype(np.float64)
    mean = {}
    for rule, reference in REFERENCES.items():
        found = outcomes(rule, jnp.asarray(p, jnp.float32), jnp.asarray(q, jnp.float32))
        drawn = {tokens: np.prod([q[i, token] for i, token in enumerate(tokens)]) for tokens in TRUNKS}
        mean[rule] = sum(
            drawn[t] * n * found[t, G, n, y] for t in TRUNKS for n in range(G + 1) for y in range(V)
        )
        wanted = sum(drawn[t] * n * c for t in TRUNKS for (n, _), c in reference(p, q, t).items())
        assert mean[rule] == pytest.approx(wanted, abs=1e-5)
    assert mean["block"] > mean["token"] + 0.01


@pytest.mark.parametrize("rule", ["token", "block"])
def test_at_temperature_zero_exactly_the_greedy_tokens_are_accepted(rule):
    p = random_laws(G + 1, 2)
    best = p.argmax(-1)
    for guess in TRUNKS[::4]:  # a draft at temperature 0 gives all of its law to its guess
        found = outcomes(rule, jnp.asarray(p), jax.nn.one_hot(np.array(guess), V), 0.0)
        for length in range(G + 1):
            n = next((i for i in range(length) if guess[i] != best[i]), length)
            law = {(i, y): found[guess, length, i, y] for i in range(G + 1) for y in range(V)}
            assert law == {key: float(key == (n, best[n])) for key in law}


def test_match_stops_at_the_first_difference_and_at_the_end_of_the_trunk():
    picks = jnp.array([[1, 2, 0, 2]] * 6, jnp.int32)
    tokens = jnp.array([[1, 2, 0], [1, 2, 0], [1, 0, 0], [0, 2, 0], [1, 2, 0], [1, 2, 1]], jnp.int32)
    lengths = jnp.array([3, 2, 3, 3, 0, 3], jnp.int32)
    outcome = match(picks, Trunk(tokens, lengths, None))
    assert outcome.accepted.tolist() == [3, 2, 1, 0, 0, 2]
    assert outcome.token.tolist() == [2, 0, 2, 1, 1, 0]


def test_shared_noise_is_that_of_the_positions_and_not_drawn_for_greedy_rows():
    noise = KeyedNoise.create(jnp.zeros(2, jnp.uint32), jnp.arange(2, dtype=jnp.uint32))
    positions = jnp.array([[3, 4], [7, 8]], jnp.int32)
    sampled = shared_noise(noise, positions, V, Sampling.create(2, [0.0, 1.0]))
    # Written out: the noise of a position is the Gumbel row of the row's key folded with it.
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), 1), 8)
    np.testing.assert_array_equal(sampled.rows[1, 1], jax.random.gumbel(key, (V,), jnp.float32))
    assert not np.asarray(shared_noise(noise, positions, V, Sampling.create(2, 0.0)).rows).any()


@pytest.mark.parametrize("rule", ["token", "block"])
def test_tokens_are_drawn_from_the_very_row_that_is_kept(rule):
    rows = 4096
    logits = jnp.asarray(np.random.default_rng(1).normal(size=(1, 5)), jnp.float32).repeat(rows, 0)
    noise = KeyedNoise.create(jnp.zeros(rows, jnp.uint32), jnp.arange(rows, dtype=jnp.uint32))
    sampling = Sampling.create(rows, 0.6, 3, 0.9)
    token, rows_, law, _ = choose(rule, logits[:, None], None, noise.start()[:, None], noise, sampling)
    kept = np.asarray(law)[0, 0]
    np.testing.assert_allclose(np.exp(rows_[0, 0]), kept, atol=1e-6)
    assert (kept > 0).sum() <= 3
    counts = np.bincount(np.asarray(token)[:, 0], minlength=5) / rows
    assert not counts[kept == 0].any()
    np.testing.assert_allclose(counts, kept, atol=4 * 0.5 / np.sqrt(rows))
