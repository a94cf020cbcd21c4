"""Lookahead: plain decoding's text, a cache that holds the text, and guesses that hit where text repeats."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import (
    Autoregressive,
    Engine,
    KeyedNoise,
    KVCache,
    Lookahead,
    PromptLookup,
    Sampling,
    State,
    run,
    start,
    summary,
)
from sbjax.engine import INVALID, LENGTH, RUNNING, STOP
from sbjax.lookahead_round import plan
from sbjax.prefill import prefill
from sbjax.testing import ScriptModel, TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
VOCAB, ROWS, CONTEXT, SLOTS = 11, 160, 44, 52
TABLE = TableModel(VOCAB, max_length=CONTEXT)
TARGET = TABLE.init(0, 2.0)
RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(0, VOCAB, RNG.integers(1, 13)).tolist() for _ in range(ROWS)]
# Every fifth row may fill the target's context.
LIMITS = [CONTEXT - len(p) if row % 5 == 0 else int(RNG.integers(1, 32)) for row, p in enumerate(PROMPTS)]
SETTINGS = {
    "temperature": RNG.choice([0, 0, 0.3, 0.7, 1.0, 1.6], ROWS),
    "top_k": RNG.choice([0, 0, 1, 4], ROWS),
    "top_p": RNG.choice([1.0, 1.0, 0.9, 0.5], ROWS),
}
METHODS = {
    "lookahead": Lookahead(window=5, ngram=4, guesses=4, pool=32),
    "bigrams": Lookahead(window=3, ngram=2, guesses=4, pool=16),
    "one column, one guess": Lookahead(window=1, ngram=3, guesses=1, pool=2),
    "prompt lookup": PromptLookup(tokens=4, ngram=2),
}
WIDTHS = {"lookahead": (15, 27), "bigrams": (7,), "one column, one guess": (4,), "prompt lookup": (5,)}


def advance(engine: Engine, params, state: State, rounds: int = 1) -> State:
    return run(engine, {"target": params}, state, jnp.int32(rounds))


def running(state: State) -> bool:
    return bool(np.any(np.asarray(state.status) == RUNNING))


def begin(name: str, params=TARGET, rows=range(ROWS)) -> tuple[Engine, State]:
    """All rows in some order, each with its settings."""
    rows, method = list(rows), METHODS.get(name, Autoregressive())
    engine = Engine(TABLE, None, method, VOCAB, log_probs=True, widths=WIDTHS.get(name))
    ids = jnp.asarray(rows, jnp.uint32)
    prompts, limits = ([table[row] for row in rows] for table in (PROMPTS, LIMITS))
    sampling = Sampling.create(ROWS, **{key: value[rows] for key, value in SETTINGS.items()})
    noise = KeyedNoise.create(jnp.full(ROWS, 5, jnp.uint32), ids)
    options = {"sampling": sampling, "noise": noise, "stop_ids": (3,), "slots": SLOTS}
    return engine, start(engine, {"target": params}, prompts, limits, **options)


def decode(name: str, params=TARGET, rows=range(ROWS)) -> State:
    engine, state = begin(name, params, rows)
    return jax.tree.map(np.asarray, advance(engine, params, state, 1000).replace(noise=None))


@functools.cache
def plain() -> State:
    return decode("plain")


def texts(state: State) -> list[tuple]:
    return [
        (text[:n].tolist(), int(status))
        for text, n, status in zip(state.text, state.length, state.status, strict=True)
    ]


def check_cache(model, params, state: State) -> None:
    """The target's cache holds what a fresh prefill of the text would."""
    length = np.asarray(state.target.length)
    np.testing.assert_array_equal(length, np.asarray(state.length) - 1)
    fresh = KVCache.create(model.cache_spec, *state.text.shape)
    fresh = prefill(model, params, fresh, state.text, state.length, chunk=32)
    inside = (np.arange(state.text.shape[1]) < length[:, None])[:, None, :, None]
    for found, wanted in ((state.target.keys, fresh.keys), (state.target.values, fresh.values)):
        np.testing.assert_array_equal(np.where(inside, found[0], 0), np.where(inside, wanted[0], 0))


def test_the_rows_to_compare_end_in_every_way():
    assert np.bincount(plain().status, minlength=3)[[STOP, LENGTH]].min() > 50
    assert (plain().length == CONTEXT).sum() > 3


@pytest.mark.parametrize("name", METHODS)
def test_the_text_is_that_of_plain_decoding(name):
    state = decode(name)
    assert texts(state) == texts(plain())
    prompts = np.array([len(prompt) for prompt in PROMPTS])
    place = np.arange(SLOTS)
    new = (place >= prompts[:, None]) & (place < state.length[:, None])
    np.testing.assert_allclose(state.log_probs[new], plain().log_probs[new], atol=1e-5)
    counters = state.statistics
    np.testing.assert_array_equal(counters.emitted, state.length - prompts)
    assert counters.accepted[:, 0].sum() > 50 and counters.accepted[:, -1].sum() > 5
    assert counters.rolled_back.sum() > 50
    assert counters.rounds.sum() < plain().statistics.rounds.sum()


@pytest.mark.parametrize("name", ["lookahead", "prompt lookup"])
def test_calls_of_few_rounds_give_the_same_and_leave_the_cache_of_the_text(name):
    engine, state = begin(name)
    while running(state):
        state = advance(engine, TARGET, state, 3)
        check_cache(TABLE, TARGET, state)
    assert texts(jax.tree.map(np.asarray, state.replace(noise=None))) == texts(plain())


@pytest.mark.parametrize("name", ["lookahead", "prompt lookup"])
def test_a_row_is_the_same_beside_other_rows_and_nothing_is_traced_again(name):
    order, whole = np.random.default_rng(1).permutation(ROWS), decode(name)
    before = run._cache_size()
    found = decode(name, rows=order)
    assert run._cache_size() == before
    assert texts(found) == [texts(plain())[row] for row in order]
    for counter in ("rounds", "drafted", "accepted", "hedge_drafted"):
        wanted = getattr(whole.statistics, counter)
        np.testing.assert_array_equal(getattr(found.statistics, counter), wanted[order])


@pytest.mark.parametrize("name", ["lookahead", "prompt lookup"])
def test_a_row_of_the_target_that_is_not_finite_ends_its_row_there(name):
    bad = {"table": TARGET["table"].at[2, 1, 3].set(np.nan).at[4, 5, 0].set(np.inf)}
    found = decode(name, bad)
    assert texts(found) == texts(decode("plain", bad))
    assert np.bincount(found.status)[INVALID] > 5


SCRIPT = ScriptModel(5, max_length=100)
PERIODIC = np.resize([0, 3, 1, 4, 2, 2], 100).astype(np.int32)
SAID = {"script": jnp.asarray(PERIODIC)}
REPEATED = Lookahead(window=6, ngram=4, guesses=3, pool=64)


def repeated(new_tokens) -> tuple[Engine, State]:
    """Rows of one periodic text that begin at other places of it."""
    engine = Engine(SCRIPT, None, REPEATED, 5)
    prompts = [PERIODIC[:n].tolist() for n in (3, 4, 7, 1)]
    noise = KeyedNoise.create(jnp.zeros(4, jnp.uint32), jnp.arange(4, dtype=jnp.uint32))
    options = {"sampling": Sampling.create(4), "noise": noise, "slots": 100}
    return engine, start(engine, {"target": SAID}, prompts, new_tokens, **options)


def test_the_pool_hits_where_a_text_repeats_itself_and_the_cache_is_the_texts():
    engine, state = repeated([40, 30, 50, 45])
    shapes, seen = jax.tree.map(jnp.shape, state.memory), set()
    while running(state):
        before = np.asarray(state.length)
        state = advance(engine, SAID, state)
        length = np.asarray(state.length)
        seen |= set((length - before).tolist())
        for text, n in zip(np.asarray(state.text), length, strict=True):
            np.testing.assert_array_equal(text[:n], PERIODIC[:n])
        check_cache(SCRIPT, SAID, state)
    assert seen >= {0, 1, 4} and jax.tree.map(jnp.shape, state.memory) == shapes
    assert (np.asarray(state.status) == LENGTH).all() and length.tolist() == [43, 34, 57, 46]
    figures = summary(state.statistics)
    assert figures["mean_accepted_length"] > 2.5
    # Forwards of the window alone, and with all guesses.
    assert (
        list(figures["target_forwards_by_width"]) == [18, 27] and figures["target_forwards_by_width"][18] > 0
    )


def test_in_the_second_period_every_round_is_full():
    engine, state = repeated([70] * 4)
    state = advance(engine, SAID, state, 12)
    before = jax.tree.map(np.asarray, state.statistics)
    after = advance(engine, SAID, state, 2).statistics
    np.testing.assert_array_equal(np.asarray(after.emitted) - before.emitted, 8)
    np.testing.assert_array_equal(np.asarray(after.accepted)[:, -1] - before.accepted[:, -1], 2)


def test_a_token_sees_its_column_its_guess_and_the_text():
    layout = plan(Lookahead(window=3, ngram=4, guesses=2, pool=6))
    names = ["p", "01", "02", "10", "11", "12", "20", "21", "22", "a1", "a2", "a3", "b1", "b2", "b3"]
    seen = {
        name: [names[i] for i in np.flatnonzero(row)] for name, row in zip(names, layout.mask, strict=True)
    }
    assert seen["p"] == ["p"] and seen["02"] == ["p", "01", "02"]
    assert seen["20"] == ["p", "10", "20"] and seen["12"] == ["p", "01", "02", "12"]
    assert seen["22"] == ["p", "01", "02", "12", "22"]
    assert seen["a1"] == ["p", "a1"] and seen["b3"] == ["p", "b1", "b2", "b3"]
    assert layout.offset.tolist() == [0, 1, 2, 1, 2, 3, 2, 3, 4, 1, 2, 3, 1, 2, 3]
    assert [names[i] for i in layout.asked] == ["p", "20", "21", "22", "a1", "a2", "a3", "b1", "b2", "b3"]
    # A pick stands one behind the token it is made of, and noise 0 is the first position behind the text.
    np.testing.assert_array_equal(layout.noise, layout.offset[layout.asked])


def test_the_first_window_is_made_of_the_prompt():
    text, length = (
        jnp.asarray([[7, 7, 0, 0, 0, 0], [1, 2, 3, 4, 5, 0]], jnp.int32),
        jnp.asarray([2, 5], jnp.int32),
    )
    window = np.asarray(REPEATED.create(text, length).window)
    assert window.shape == (2, 3, 6)
    assert (window[0] == 7).all() and set(window[1].ravel().tolist()) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"ngram": 1}, "ngram must be at least 2, got 1"),
        ({"guesses": 0}, r"guesses must be at least 1, got 0; use Autoregressive\(\) for 0"),
        ({"pool": 13}, "pool must be at least 14, got 13: twice the window, and no less than guesses"),
        ({"guesses": 30, "pool": 29}, "pool must be at least 30"),
        ({"window": 2.0}, "window must be an integer"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Lookahead(**settings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "token"}, 'Lookahead has no draft whose law the token rule could test: use rule="match"'),
        ({"rule": "block"}, "Lookahead has no draft"),
        ({"widths": (1, 56)}, r"widths must rise from at least 28 to 56, got \(1, 56\)"),
        ({"widths": (28, 40)}, "widths must rise from at least 28 to 56"),
    ],
)
def test_an_engine_that_cannot_run_it_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Engine(TABLE, None, Lookahead(), VOCAB, **options)


def test_forwards_without_and_with_all_guesses_and_what_lies_between_are_compiled():
    assert Engine(TABLE, None, Lookahead(window=3, ngram=3, guesses=2, pool=8), VOCAB).target_widths == (
        6,
        8,
        10,
    )
    assert Engine(TABLE, None, Lookahead(), VOCAB).target_widths == (28, 32, 56)
