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
VOCAB, ROWS, SLOTS = 11, 300, 64
TABLE = TableModel(VOCAB, max_length=SLOTS)
TARGET = TABLE.init(0, 2.0)
RNG = np.random.default_rng(0)
PROMPTS = [RNG.integers(0, VOCAB, RNG.integers(1, 13)).tolist() for _ in range(ROWS)]
LIMITS = RNG.integers(1, 40, ROWS).tolist()
SETTINGS = {
    "temperature": RNG.choice([0, 0.3, 0.7, 1.0, 1.6], ROWS),
    "top_k": RNG.choice([0, 0, 1, 4], ROWS),
    "top_p": RNG.choice([1.0, 1.0, 0.9, 0.5], ROWS),
}
METHODS = {
    "as in the paper": Lookahead(),
    "bigrams": Lookahead(window=3, ngram=2, guesses=4, pool=16),
    "one column, one guess": Lookahead(window=1, ngram=4, guesses=1, pool=2),
    "more columns than guesses": Lookahead(window=6, ngram=3, guesses=2, pool=12),
    "prompt lookup": PromptLookup(tokens=4, ngram=2),
}


def begin(engine: Engine, params, prompts, new_tokens, rows=None, **settings) -> State:
    """Rows with the ids ``rows``; the settings are those of ``start`` and ``Sampling``."""
    ids = jnp.arange(len(prompts), dtype=jnp.uint32) if rows is None else jnp.asarray(rows, jnp.uint32)
    limits = [new_tokens] * len(prompts) if isinstance(new_tokens, int) else new_tokens
    options = {name: settings.pop(name) for name in ("stop_ids", "slots") if name in settings}
    sampling = Sampling.create(len(prompts), **settings)
    noise = KeyedNoise.create(jnp.full(len(prompts), 5, jnp.uint32), ids)
    return start(engine, {"target": params}, prompts, limits, sampling=sampling, noise=noise, **options)


def advance(engine: Engine, params, state: State, rounds: int = 1) -> State:
    return run(engine, {"target": params}, state, jnp.int32(rounds))


def finish(engine: Engine, params, state: State, chunk: int = 1000) -> State:
    while np.any(np.asarray(state.status) == RUNNING):
        state = advance(engine, params, state, chunk)
    return jax.tree.map(np.asarray, state.replace(noise=None))


def decode(method, rows=range(ROWS), chunk: int = 1000) -> State:
    """Some of the rows, each with all its settings."""
    rows, engine = list(rows), Engine(TABLE, None, method, VOCAB, log_probs=True)
    prompts, limits = ([table[row] for row in rows] for table in (PROMPTS, LIMITS))
    settings = {name: value[rows] for name, value in SETTINGS.items()}
    state = begin(engine, TARGET, prompts, limits, rows, stop_ids=(3,), slots=SLOTS, **settings)
    return finish(engine, TARGET, state, chunk)


@functools.cache
def plain() -> State:
    return decode(Autoregressive())


def texts(state: State) -> list[tuple]:
    return [
        (text[:n].tolist(), int(status))
        for text, n, status in zip(state.text, state.length, state.status, strict=True)
    ]


def check_log_probs(state: State) -> None:
    for found, wanted, prompt, n in zip(
        state.log_probs, plain().log_probs, map(len, PROMPTS), state.length, strict=True
    ):
        np.testing.assert_allclose(found[prompt:n], wanted[prompt:n], atol=1e-5)


def check_cache(model, params, state: State) -> None:
    """The target's cache holds what a fresh prefill of the text would."""
    np.testing.assert_array_equal(np.asarray(state.target.length), np.asarray(state.length) - 1)
    fresh = KVCache.create(model.cache_spec, *state.text.shape)
    fresh = prefill(model, params, fresh, state.text, state.length, chunk=32)
    for row, n in enumerate(state.target.length.tolist()):
        for found, wanted in ((state.target.keys, fresh.keys), (state.target.values, fresh.values)):
            np.testing.assert_array_equal(found[0][row, :, :n], wanted[0][row, :, :n], err_msg=f"row {row}")


@pytest.mark.parametrize("name", METHODS)
def test_the_text_is_that_of_plain_decoding(name):
    state = decode(METHODS[name])
    assert texts(state) == texts(plain())
    check_log_probs(state)
    counters = state.statistics
    np.testing.assert_array_equal(counters.emitted, state.length - np.array([len(p) for p in PROMPTS]))
    assert counters.accepted[:, 0].sum() > 50 and counters.accepted[:, -1].sum() > 5
    assert counters.rolled_back.sum() > 50
    assert counters.rounds.sum() < plain().statistics.rounds.sum()


def test_the_rows_to_compare_end_in_every_way():
    assert np.bincount(plain().status, minlength=3)[[STOP, LENGTH]].min() > 50


@pytest.mark.parametrize("name", ["as in the paper", "prompt lookup"])
def test_calls_of_one_round_and_rows_alone_give_the_same(name):
    whole = decode(METHODS[name], chunk=1)
    assert texts(whole) == texts(plain())
    for row in (0, 17, 200):
        alone = decode(METHODS[name], [row])
        assert texts(alone) == [texts(plain())[row]]
        for counter in ("rounds", "drafted", "accepted", "hedge_drafted"):
            found, wanted = getattr(alone.statistics, counter), getattr(whole.statistics, counter)
            np.testing.assert_array_equal(found[0], wanted[row])


SCRIPT = ScriptModel(5, max_length=100)
PERIODIC = np.resize([0, 3, 1, 4, 2, 2], 100).astype(np.int32)
SAID = {"script": jnp.asarray(PERIODIC)}
REPEATED = Lookahead(window=6, ngram=4, guesses=3, pool=64)


def repeated(new_tokens) -> tuple[Engine, State]:
    """Rows of one periodic text that begin at other places of it."""
    engine = Engine(SCRIPT, None, REPEATED, 5)
    return engine, begin(engine, SAID, [PERIODIC[:n].tolist() for n in (3, 4, 7, 1)], new_tokens)


def test_the_pool_hits_where_a_text_repeats_itself_and_the_cache_is_the_texts():
    engine, state = repeated([40, 30, 50, 45])
    shapes, seen = jax.tree.map(jnp.shape, state.memory), set()
    while np.any(np.asarray(state.status) == RUNNING):
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
    # Forwards of the window alone, with two guesses, with three.
    assert (
        list(figures["target_forwards_by_width"]) == [18, 27] and figures["target_forwards_by_width"][18] > 0
    )


def test_in_the_second_period_every_round_is_full():
    engine, state = repeated(70)
    state = advance(engine, SAID, state, 12)
    before = jax.tree.map(np.asarray, state.statistics)
    after = advance(engine, SAID, state, 2).statistics
    np.testing.assert_array_equal(np.asarray(after.emitted) - before.emitted, 8)
    np.testing.assert_array_equal(np.asarray(after.accepted)[:, -1] - before.accepted[:, -1], 2)


def test_the_cache_is_the_texts_when_sampling():
    engine = Engine(TABLE, None, METHODS["bigrams"], VOCAB)
    state = begin(engine, TARGET, PROMPTS[:6], 40, temperature=[0.0, 0.3, 0.7, 1.0, 1.5, 0.0], slots=SLOTS)
    while np.any(np.asarray(state.status) == RUNNING):
        state = advance(engine, TARGET, state, 3)
        check_cache(TABLE, TARGET, state)
    assert np.asarray(state.statistics.accepted).sum() > 10


def both(params, prompts, new_tokens, method=METHODS["as in the paper"], model=TABLE, **settings):
    """The ends of plain decoding and of a method."""
    engines = [Engine(model, None, each, model.vocab_size) for each in (Autoregressive(), method)]
    return [finish(e, params, begin(e, params, prompts, new_tokens, **settings)) for e in engines]


@pytest.mark.parametrize("name", ["as in the paper", "prompt lookup"])
def test_a_text_may_fill_the_targets_context(name):
    short = TableModel(VOCAB, max_length=30)
    prompts = [[1], [2, 3], [0, 1, 1], [3] * 29]
    settings = {"model": short, "temperature": [0.0, 0.0, 0.5, 1.0]}
    wanted, found = both(TARGET, prompts, [29, 28, 27, 1], METHODS[name], **settings)
    assert texts(found) == texts(wanted) and found.length.tolist() == [30] * 4
    assert found.statistics.accepted.sum() > 10


def test_a_row_of_the_target_that_is_not_finite_ends_its_row_there():
    bad = {"table": TARGET["table"].at[2, 1, 3].set(np.nan).at[:, 5, 0].set(np.inf)}
    wanted, found = both(bad, [*PROMPTS[:30], [2, 1]], 30, temperature=[0.0, 1.0, 1.5] * 10 + [0.0])
    assert texts(found) == texts(wanted)
    assert np.bincount(found.status)[[LENGTH, INVALID]].min() > 2 and found.length[-1] == 2


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


def test_widths_may_be_chosen():
    method = Lookahead(window=3, ngram=3, guesses=2, pool=8)
    engine = Engine(TABLE, None, method, VOCAB, widths=(10,))
    found = finish(engine, TARGET, begin(engine, TARGET, PROMPTS[:4], 20))
    default = Engine(TABLE, None, method, VOCAB)
    assert default.target_widths == (6, 8, 10)
    assert texts(found) == texts(finish(default, TARGET, begin(default, TARGET, PROMPTS[:4], 20)))
    assert found.statistics.target_forwards.tolist() == [found.statistics.rounds.max()]
