"""The emitted text has exactly the target's law: by enumeration, and with real keys over many rows."""

import collections
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import Autoregressive, Engine, KeyedNoise, Sampling, ScriptedNoise, SpS, run, start
from sbjax.methods import PEARL, SpecBranch
from sbjax.testing import TableModel, enumerate_law, joint_law, total_variation

pytestmark = pytest.mark.usefixtures("quick_compile")
MODEL = TableModel(vocab_size=3, max_length=16)
COIN = TableModel(vocab_size=2, max_length=16)
PROMPT = [1, 2]


def engine(rule: str, draft_length: int, model: TableModel = MODEL) -> Engine:
    method = SpS(draft_length) if draft_length else Autoregressive()
    return Engine(model, model if draft_length else None, method, model.vocab_size, rule=rule)


def tables(target, draft) -> dict:
    return {"target": {"table": jnp.asarray(target)}, "draft": {"table": jnp.asarray(draft)}}


def random_table(seed: int, order: int = 2, vocab: int = 3) -> np.ndarray:
    return np.asarray(TableModel(vocab, order).init(seed, 1.5)["table"])


def constant(law) -> np.ndarray:
    """A table that gives one law everywhere."""
    with np.errstate(divide="ignore"):
        logits = np.log(np.array(law, np.float32))
    return np.broadcast_to(logits, (len(law),) * 3)


def with_zeros(table: np.ndarray) -> np.ndarray:
    """Another token excluded in every context."""
    index = np.arange(len(table))
    excluded = (index[:, None, None] + index[None, :, None]) % len(table) == index[None, None]
    return np.where(excluded, -np.inf, table).astype(np.float32)


def distance(engine: Engine, target, draft, new_tokens: int, batch: int = 2048, **settings) -> float:
    """Total variation between the engine's law and the target's."""
    prompt = PROMPT if engine.vocab_size > 2 else PROMPT[:1]
    found = enumerate_law(engine, tables(target, draft), prompt, new_tokens, batch=batch, **settings)
    return total_variation(found, joint_law(target, prompt, new_tokens, **settings))


# Weights are products of at most 20 float32 probabilities, each right to some 1e-7, so sums over all
# scripts are right to about 1e-6. The faults that these tests are for cost 1e-3 and more.
CLOSE = 2e-6


def with_unusable_rows(table: np.ndarray) -> np.ndarray:
    """NaN, plus infinity and nothing finite, each in one context."""
    table = table.copy()
    table[0, 0, 1], table[1, 1, 2], table[2, 2, 0], table[2, 0] = np.nan, np.inf, np.inf, -np.inf
    return table


CASES = {
    "order 1": (random_table(0, 1), random_table(1, 1), {}),
    "order 2": (random_table(2), random_table(3), {}),
    "draft with zeros": (random_table(4), with_zeros(random_table(5)), {}),
    "target with zeros": (with_zeros(random_table(6)), random_table(7), {}),
    "temperature": (random_table(8), random_table(9), {"temperature": 0.6}),
    "top-k": (random_table(10), random_table(11), {"top_k": 2}),
    "top-p": (random_table(12), random_table(13), {"top_p": 0.7, "temperature": 1.4}),
    "stop token": (random_table(14), random_table(15), {"stop_ids": [0]}),
    "unusable draft": (random_table(18), with_unusable_rows(random_table(19)), {}),
    "draft is the target": (random_table(16), random_table(16), {}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("rule", "draft_length"), [("token", 1), ("token", 2), ("block", 2)])
def test_all_scripts_of_all_rounds_sum_to_the_law_of_the_target(rule, draft_length, case):
    target, draft, settings = CASES[case]
    assert distance(engine(rule, draft_length), target, draft, draft_length + 2, **settings) < CLOSE


def test_long_blocks_are_exact_too():
    target, draft, settings = CASES["order 2"]
    assert distance(engine("block", 3), target, draft, 5, **settings) < CLOSE


OVERLAPPED = {
    "PEARL of one step": (PEARL(1), 3),
    "PEARL": (PEARL(2), 3),
    "point": (SpecBranch(1, branches=3, hedge="point", head_start=0), 3),
    "outcomes": (SpecBranch(2, branches=3, head_start=0), 2),
    "trimmed, the tail a head start": (SpecBranch(2, branches=2, epsilon=0.6, head_start=1), 2),
}


@pytest.mark.parametrize("case", OVERLAPPED)
@pytest.mark.parametrize("rule", ["token", "block"])
def test_overlapped_rounds_are_exact_by_all_scripts_of_several_rounds(rule, case):
    method, vocab = OVERLAPPED[case]
    model = TableModel(vocab, max_length=32)
    engine = Engine(model, model, method, vocab, rule=rule)
    target, draft = random_table(2, vocab=vocab), random_table(3, vocab=vocab)
    assert distance(engine, target, draft, 4, batch=4096) < CLOSE


def test_plain_decoding_draws_from_the_law():
    target, _, settings = CASES["top-p"]
    assert distance(engine("token", 0), target, target, 4, **settings) < CLOSE


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (
            (0.5, 0.3, 0.2),
            (0.6, 0.3, 0.1),
        ),  # an argmax drafter tested with softmax rows gives (.833, 0, .167)
        ((0.5, 0.3, 0.2), (8 / 15, 7 / 15, 0)),  # raw rows against a draft cut to two tokens give (.6, .4, 0)
        ((0.5, 0.5, 0), (1, 0, 0)),  # a residual put through softmax gives (.27, .45, .27)
        ((0.2, 0.5, 0.3), (0.5, 0.2, 0.3)),  # a residual cut at the drafted token gives (.2, .39, .41)
        ((0.9, 0.05, 0.05), (0.9, 0.05, 0.05)),  # unlikely drafts dropped: the likely token gains
        ((0, 1, 0), (1, 0, 0)),  # nothing in common
    ],
)
def test_known_counterexamples(p, q):
    for rule, draft_length in (("token", 1), ("block", 2)):
        assert distance(engine(rule, draft_length), constant(p), constant(q), draft_length + 2) < CLOSE


def test_scripts_of_one_compiled_loop_sum_to_the_law_of_the_target():
    new_tokens, entries = 3, [3, 2, 3]  # a draft, its test, the token behind it
    scripts = np.array(list(itertools.product(*map(range, entries * new_tokens))), np.int32)
    rows, (target, draft, _) = len(scripts), CASES["order 2"]
    static, params = engine("token", 1), tables(target, draft)
    state = start(
        static, params, [PROMPT] * rows, [new_tokens] * rows, sampling=Sampling.create(rows, 1.0),
        noise=ScriptedNoise.create(jnp.asarray(scripts)), slots=len(PROMPT) + new_tokens + static.slack,
    )  # fmt: skip
    state = run(static, params, state, jnp.int32(100))
    assert int(state.noise.cursor) == scripts.shape[1]
    found = collections.defaultdict(float)
    for text, weight in zip(np.asarray(state.text), np.asarray(state.noise.weight, np.float64), strict=True):
        found[tuple(text[len(PROMPT) : len(PROMPT) + new_tokens].tolist())] += weight
    assert total_variation(found, joint_law(target, PROMPT, new_tokens)) < CLOSE


def sampled(static: Engine, params, rows: int, new_tokens: int, **settings):
    """Rows of one prompt with real keys, and how much of what was tested was accepted."""
    noise = KeyedNoise.create(jnp.full(rows, 7, jnp.uint32), jnp.arange(rows, dtype=jnp.uint32))
    slots = len(PROMPT) + new_tokens + static.slack
    state = start(
        static, params, [PROMPT[:1]] * rows, [new_tokens] * rows, sampling=Sampling.create(rows, **settings),
        noise=noise, slots=slots,
    )  # fmt: skip
    state = run(static, params, state, jnp.int32(100))
    return np.asarray(state.text)[:, 1 : 1 + new_tokens], state.statistics.host()


def chi_square(texts: np.ndarray, law: dict) -> float:
    """Pearson's statistic over its number of degrees of freedom."""
    counts = collections.Counter(map(tuple, texts.tolist()))
    assert counts.keys() <= law.keys()
    total = sum((counts[text] - len(texts) * p) ** 2 / (len(texts) * p) for text, p in law.items())
    return total / (len(law) - 1)


@pytest.mark.parametrize("rule", ["token", "block"])
def test_real_keys_give_the_law_over_several_rounds(rule):
    target, draft = constant((0.5, 0.5)), constant((0.75, 0.25))
    static = engine(rule, 2, COIN)
    texts, statistics = sampled(static, tables(target, draft), 16384, 6, temperature=1.0)
    assert statistics.rounds.min() >= 2
    # The second of two drafted tokens is where noise keyed by the position alone gives 25/48 for 1/2.
    assert np.abs(texts.mean(0) - 0.5).max() < 4 * 0.5 / np.sqrt(len(texts))
    assert chi_square(texts, joint_law(target, PROMPT[:1], 6)) < 1.6  # 63 degrees of freedom: 1 in 1000
    _, statistics = sampled(static, tables(target, target), 16384, 6, temperature=1.0)
    np.testing.assert_array_equal(statistics.tested, statistics.accepted)


def test_shared_noise_gives_plain_decoding_the_law_of_the_target():
    target, settings = random_table(20), {"temperature": 0.8, "top_k": 2, "top_p": 0.95}
    texts, _ = sampled(engine("match", 0), tables(target, target), 16384, 3, **settings)
    law = joint_law(target, PROMPT[:1], 3, **settings)
    assert chi_square(texts, law) < 3
