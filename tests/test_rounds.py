"""Rounds with scripted verdicts: caches stay those of the text; broken rows and short drafts hurt nobody."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import Autoregressive, Engine, KeyedNoise, KVCache, Sampling, SpS, run, start
from sbjax.engine import INVALID, LENGTH, RUNNING, State
from sbjax.prefill import prefill
from sbjax.testing import ScriptModel, TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
VOCAB, SLOTS, G = 6, 64, 4
SCRIPT = ScriptModel(VOCAB, max_length=SLOTS)
SAID = np.random.default_rng(0).integers(0, VOCAB, SLOTS).astype(np.int32)


def begin(engine: Engine, params, prompts, new_tokens, **settings) -> State:
    rows = len(prompts)
    noise = KeyedNoise.create(jnp.full(rows, 3, jnp.uint32), jnp.arange(rows, dtype=jnp.uint32))
    limits = [new_tokens] * rows if isinstance(new_tokens, int) else new_tokens
    sampling = Sampling.create(rows, **settings)
    return start(engine, params, prompts, limits, sampling=sampling, noise=noise, slots=SLOTS)


def finish(engine: Engine, params, state: State) -> State:
    return jax.tree.map(np.asarray, run(engine, params, state, jnp.int32(1000)).replace(noise=None))


def decode(
    draft_length: int, target, target_params, draft, draft_params, prompts, new_tokens, **settings
) -> State:
    method = SpS(draft_length) if draft_length else Autoregressive()
    engine = Engine(target, draft if draft_length else None, method, target.vocab_size)
    params = {"target": target_params, "draft": draft_params}
    return finish(engine, params, begin(engine, params, prompts, new_tokens, **settings))


def texts(state: State) -> list[tuple]:
    return [
        (text[:n].tolist(), int(status))
        for text, n, status in zip(state.text, state.length, state.status, strict=True)
    ]


def scripts_with_verdicts(verdicts, length: int) -> dict:
    """A target's script, and a draft's that is right for exactly so many tokens round after round."""
    draft = SAID.copy()
    for accepted in verdicts:
        if accepted < G:
            draft[length + accepted] = (SAID[length + accepted] + 1) % VOCAB
        length += accepted + 1
    return {"target": {"script": jnp.asarray(SAID)}, "draft": {"script": jnp.asarray(draft)}}


def check_cache(model, params, cache: KVCache, state: State) -> None:
    """A cache holds what a fresh prefill of the text would, as far as it goes."""
    fresh = KVCache.create(model.cache_spec, len(state.length), SLOTS)
    fresh = prefill(model, params, fresh, state.text, state.length, chunk=32)
    for row, n in enumerate(cache.length.tolist()):
        for found, wanted in ((cache.keys, fresh.keys), (cache.values, fresh.values)):
            np.testing.assert_array_equal(found[0][row, :, :n], wanted[0][row, :, :n], err_msg=f"row {row}")


def test_caches_are_those_of_the_text_after_every_verdict():
    verdicts = [0, 1, 2, 3, 4, 4, 0, 4, 1, 4, 4, 4, 0, 0, 3]
    prompts = [SAID[:n].tolist() for n in (3, 4, 7, 1)]
    engine, params = Engine(SCRIPT, SCRIPT, SpS(G), VOCAB), scripts_with_verdicts(verdicts, 3)
    state, seen = begin(engine, params, prompts, [50, 40, 30, 52]), set()
    before = np.asarray(state.length)
    for verdict in verdicts:
        state = run(engine, params, state, jnp.int32(1))
        length, new = np.asarray(state.length), np.asarray(state.length) - before
        assert new[0] == verdict + 1
        seen |= set(new.tolist())
        for row, n in enumerate(length):
            np.testing.assert_array_equal(np.asarray(state.text)[row, :n], SAID[:n])
        alive = np.asarray(state.status) == RUNNING
        np.testing.assert_array_equal(np.asarray(state.target.length), length - 1)
        # After a whole trunk the draft has not read its own last token.
        lacking = length - np.asarray(state.draft.length)
        np.testing.assert_array_equal(lacking[alive], np.where(new == G + 1, 2, 1)[alive])
        check_cache(SCRIPT, params["target"], state.target, state)
        check_cache(SCRIPT, params["draft"], state.draft, state)
        before = length
    assert seen >= {1, 2, 3, 4, 5}


def test_every_verdict_is_counted_where_it_happened():
    verdicts = [0, 1, 2, 3, 4, 4, 1]
    params = scripts_with_verdicts(verdicts, 3)
    new_tokens = sum(verdicts) + len(verdicts) + 1
    engine = Engine(SCRIPT, SCRIPT, SpS(G), VOCAB)
    state = finish(engine, params, begin(engine, params, [SAID[:3].tolist()] * 4, new_tokens))
    counters = state.statistics
    assert counters.rounds.tolist() == [8] * 4 and counters.target_forwards.tolist() == [1, 7]
    assert counters.emitted.tolist() == [new_tokens] * 4
    # The seventh round has 3 tokens to go, so it drafts 2; the last has 1 to go and drafts nothing.
    assert counters.drafted.tolist() == [6 * G + 2] * 4
    assert counters.tested[0].tolist() == [7, 6, 4, 3]
    assert counters.accepted[0].tolist() == [6, 4, 3, 2]
    assert counters.rolled_back.tolist() == [6 * G + 2 - sum(verdicts)] * 4
    assert counters.draft_forwards == 6 * G + 2
    assert (state.status == LENGTH).all()


TABLE = TableModel(VOCAB, max_length=SLOTS)
TARGET, DRAFT = TABLE.init(0, 2.0), TABLE.init(1, 2.0)
PROMPTS = [[5, 1], [2], [0, 3, 4, 1, 2, 5, 0, 1, 2, 0, 4, 4, 5], [1, 1, 4]]
TEMPERATURES = [0.0, 0.7, 1.0, 1.5]


def test_a_draft_guesses_as_far_as_its_context_goes_and_the_text_fills_the_targets():
    full, context = TableModel(VOCAB, max_length=30), 12
    short = TableModel(VOCAB, max_length=context)  # the third prompt is longer, the others will soon be
    limits = [30 - len(prompt) for prompt in PROMPTS]
    wanted = decode(0, TABLE, TARGET, None, None, PROMPTS, limits, temperature=TEMPERATURES)
    state = decode(G, full, TARGET, short, TARGET, PROMPTS, limits, temperature=TEMPERATURES)
    assert texts(state) == texts(wanted)
    assert state.length.tolist() == [30] * 4 and (state.status == LENGTH).all()
    np.testing.assert_array_equal(state.statistics.tested, state.statistics.accepted)
    drafted = []
    for length in map(len, PROMPTS):
        total = 0
        # The last token that the draft can guess is the one behind its last position.
        while guessed := min(G, max(0, context - length + 1)):
            total, length = total + guessed, length + guessed + 1
        drafted.append(total)
    assert state.statistics.drafted.tolist() == drafted
    plain_rounds = state.statistics.emitted - state.statistics.accepted.sum(1)
    np.testing.assert_array_equal(state.statistics.rounds, plain_rounds)


def test_a_draft_equal_to_the_target_is_right_up_to_the_end_of_the_context():
    limits = [SLOTS - G - 1 - len(prompt) for prompt in PROMPTS]
    state = decode(G, TABLE, TARGET, TABLE, TARGET, PROMPTS, limits, temperature=TEMPERATURES)
    assert texts(state) == texts(
        decode(0, TABLE, TARGET, None, None, PROMPTS, limits, temperature=TEMPERATURES)
    )
    np.testing.assert_array_equal(state.statistics.tested, state.statistics.accepted)


def with_bad_row(params, before: int, last: int, value=np.nan) -> dict:
    return {"table": params["table"].at[before, last, 3].set(value)}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_of_the_target_that_is_not_finite_ends_its_row_there(value):
    args = (PROMPTS, 30)
    good = decode(0, TABLE, TARGET, None, None, *args, temperature=TEMPERATURES)
    pair = good.text[1, 7:9].tolist()
    bad = with_bad_row(TARGET, *pair, value)
    plain = decode(0, TABLE, bad, None, None, *args, temperature=TEMPERATURES)
    drafted = decode(G, TABLE, bad, TABLE, TARGET, *args, temperature=TEMPERATURES)
    assert texts(plain) == texts(drafted)
    assert plain.status[1] == INVALID
    for row, prompt in enumerate(PROMPTS):
        text = good.text[row, : good.length[row]].tolist()
        met = [n for n in range(max(len(prompt), 2), len(text)) if text[n - 2 : n] == pair]
        end = min(met, default=len(text))
        assert texts(plain)[row] == (text[:end], INVALID if met else LENGTH)


def test_a_draft_that_is_not_finite_changes_nothing():
    args = (PROMPTS, 30)
    wanted = decode(0, TABLE, TARGET, None, None, *args, temperature=TEMPERATURES)
    for value in (np.nan, np.inf):
        broken = {"table": jnp.where(jnp.arange(VOCAB)[:, None, None] < 3, value, DRAFT["table"])}
        state = decode(G, TABLE, TARGET, TABLE, broken, *args, temperature=TEMPERATURES)
        assert texts(state) == texts(wanted)
        assert state.statistics.accepted.any()


def test_a_drafted_token_whose_states_are_not_finite_hurts_nobody_if_it_is_refused():
    class Poisoned(TableModel):
        """Writes NaN for one token, as a damaged embedding row would."""

        def forward(self, params, tokens, positions, cache, mask=None, *, features=0):
            class Writer:
                def attend(self, layer, query, key, value, *args, **options):
                    value = jnp.where((tokens == 5)[:, :, None, None], jnp.nan, value)
                    return cache.attend(layer, query, key, value, *args, **options)

            return super().forward(params, tokens, positions, Writer(), mask, features=features)

    model = Poisoned(VOCAB, max_length=SLOTS)
    never = {"table": TARGET["table"].at[:, :, 5].set(-50.0)}
    always = {"table": jnp.zeros_like(TARGET["table"]).at[:, :, 5].set(50.0)}
    prompts = [[1], [2, 3], [4], [0, 1, 2]]
    wanted = decode(0, TABLE, never, None, None, prompts, 20)
    state = decode(G, model, never, TABLE, always, prompts, 20)
    assert texts(state) == texts(wanted) and not state.statistics.accepted.any()
