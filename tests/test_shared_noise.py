"""Under the shared-noise rule every method gives plain decoding's text, whatever the other rows do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import Autoregressive, Engine, KeyedNoise, Sampling, SpS, State, run, start
from sbjax.engine import LENGTH, RUNNING, STOP
from sbjax.methods import PEARL, AdaEDL, SpecBranch
from sbjax.testing import TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
VOCAB, ROWS, SLOTS = 11, 384, 64
MODEL = TableModel(VOCAB, max_length=SLOTS)
TARGET = MODEL.init(0, 2.0)
DRAFT = {"table": TARGET["table"] + MODEL.init(1, 1.5)["table"]}
STOP_IDS = (3, 7)
RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(0, VOCAB, RNG.integers(1, 13)).tolist() for _ in range(ROWS)]
LIMITS = RNG.integers(1, 25, ROWS).tolist()
SETTINGS = {
    "temperature": RNG.choice([0, 0.3, 0.7, 1.0, 1.6], ROWS),
    "top_k": RNG.choice([0, 0, 1, 4], ROWS),
    "top_p": RNG.choice([1.0, 1.0, 0.9, 0.5], ROWS),
}


PLAIN = Autoregressive()
SERIAL = {f"SpS({g})": SpS(g) for g in (1, 2, 3, 6)}
OVERLAPPED = {
    "PEARL of one step": PEARL(1),
    "PEARL": PEARL(4),
    "point": SpecBranch(4, branches=4, hedge="point"),
    "point, trimmed": SpecBranch(3, branches=3, hedge="point", epsilon=0.6),
    "outcomes": SpecBranch(3, branches=4),
    "outcomes of one step": SpecBranch(1, branches=3),
    "trimmed, more branches than tokens": SpecBranch(3, branches=VOCAB + 2, epsilon=0.4, head_start=1),
    "trimmed, only the main branch": SpecBranch(3, branches=1, epsilon=0.9),
}
METHODS = SERIAL | {"AdaEDL": AdaEDL(5, threshold=0.6)} | OVERLAPPED


def engine(method) -> Engine:
    return Engine(MODEL, MODEL if method.draft_length else None, method, VOCAB, log_probs=True)


def decode(method, draft, rows=range(ROWS), row_ids=range(ROWS), chunk: int = 1000) -> State:
    """Decodes some of the rows, in that order, with other ids where wanted; ``chunk`` rounds a call."""
    rows, static = list(rows), engine(method)
    params = {"target": TARGET, "draft": draft if method.draft_length else None}
    noise = KeyedNoise.create(jnp.full(len(rows), 5, jnp.uint32), jnp.asarray(np.array(row_ids, np.uint32)))
    settings = {name: value[rows] for name, value in SETTINGS.items()}
    state = start(
        static, params, [PROMPTS[row] for row in rows], [LIMITS[row] for row in rows],
        sampling=Sampling.create(len(rows), **settings), noise=noise, stop_ids=STOP_IDS, slots=SLOTS,
    )  # fmt: skip
    while np.any(np.asarray(state.status) == RUNNING):
        state = run(static, params, state, jnp.int32(chunk))
    return jax.tree.map(np.asarray, state.replace(noise=None))


@functools.cache
def plain() -> State:
    return decode(PLAIN, None)


def texts(state: State) -> list[tuple]:
    """What a caller sees of every row."""
    return [
        (text[:n].tolist(), int(status))
        for text, n, status in zip(state.text, state.length, state.status, strict=True)
    ]


def check_log_probs(state: State, rows, wanted: State) -> None:
    for row, (prompt, n) in enumerate(zip([len(PROMPTS[row]) for row in rows], state.length, strict=True)):
        found = state.log_probs[row, prompt:n]
        np.testing.assert_allclose(found, wanted.log_probs[rows[row], prompt:n], atol=1e-5)


def test_the_rows_to_compare_end_in_every_way_and_are_sampled():
    state = plain()
    assert {int(status) for status in state.status} == {STOP, LENGTH}
    assert np.sum(state.length - [len(prompt) for prompt in PROMPTS]) > 2000


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_the_text_of_plain_decoding(name):
    state = decode(METHODS[name], DRAFT)
    assert texts(state) == texts(plain())
    check_log_probs(state, range(ROWS), plain())
    counters = state.statistics
    assert 0.2 < counters.accepted.sum() / counters.tested.sum() < 0.9  # both verdicts were met
    if name in SERIAL:
        assert counters.rounds.sum() < plain().statistics.rounds.sum()
    if name in OVERLAPPED:
        check_outcomes(counters, METHODS[name], "trimmed" in name)


def check_outcomes(counters, method, trimmed: bool) -> None:
    """Every round of overlap was a hit or a miss, and all kinds were met."""
    assert counters.misses.sum() > 100 and counters.hits_main.sum() > 100
    assert (counters.hits_hedge.sum() > 50) == (method.branches > 1)
    if trimmed:
        assert counters.dropped.sum() > 100 and counters.trimmed.sum() > 50
    outcomes = counters.hits_main + counters.hits_hedge + counters.misses
    np.testing.assert_array_equal(outcomes, counters.rounds)


@pytest.mark.parametrize("name", METHODS)
def test_a_draft_equal_to_the_target_is_never_refused(name):
    state = decode(METHODS[name], TARGET)
    assert texts(state) == texts(plain())
    counters = state.statistics
    np.testing.assert_array_equal(counters.tested, counters.accepted)
    assert not counters.rolled_back.any()
    if name in OVERLAPPED:
        assert not counters.misses.any() and not counters.hits_hedge.any() and not counters.trimmed.any()
    if name in SERIAL:
        assert counters.accepted.min(0).sum() == 0 < counters.accepted.sum(0).min()  # at every position
        new = state.length - np.array([len(prompt) for prompt in PROMPTS])
        # Every round but the last is full: the bonus token and its predecessors.
        np.testing.assert_array_equal(counters.rounds, -(-new // (METHODS[name].draft_length + 1)))


def test_a_draft_that_is_always_wrong_is_never_accepted():
    worst = np.asarray(TARGET["table"]).argmin(-1)
    state = decode(SpS(3), {"table": jnp.asarray(50 * np.eye(VOCAB, dtype=np.float32)[worst])})
    assert texts(state) == texts(plain())
    greedy = SETTINGS["temperature"] == 0
    assert state.statistics.tested[greedy, 0].sum() > 100 and not state.statistics.accepted[greedy].any()


def test_calls_of_one_round_give_the_text_of_one_call():
    for name in ("SpS(3)", "outcomes"):
        assert texts(decode(METHODS[name], DRAFT, chunk=1)) == texts(plain())


def test_a_row_is_the_same_beside_other_rows():
    rng = np.random.default_rng(1)
    kept, others = rng.permutation(ROWS)[: ROWS // 2], rng.integers(0, ROWS, ROWS - ROWS // 2)
    rows, order = np.concatenate([kept, others]), rng.permutation(ROWS)
    ids = np.concatenate([kept, 1000 + np.arange(len(others))])
    for method in (PLAIN, METHODS["SpS(3)"], METHODS["outcomes"]):
        found = texts(decode(method, DRAFT, rows[order], ids[order]))
        for slot, index in enumerate(order):
            if index < len(kept):
                assert found[slot] == texts(plain())[rows[index]]


def test_a_row_alone_is_the_row_of_the_batch():
    for row in (0, 17, 200):
        assert texts(decode(METHODS["outcomes"], DRAFT, [row], [row])) == [texts(plain())[row]]


def test_another_seed_or_id_gives_another_text_where_there_is_chance():
    found, wanted = texts(decode(PLAIN, None, range(ROWS), np.arange(ROWS) + 5000)), texts(plain())
    same = np.array([a == b for a, b in zip(found, wanted, strict=True)])
    temperature, top_k = SETTINGS["temperature"], SETTINGS["top_k"]
    assert same[(temperature == 0) | (top_k == 1)].all()
    assert same[(temperature >= 1) & (top_k != 1) & (np.array(LIMITS) > 10)].mean() < 0.1
