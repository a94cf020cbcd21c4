"""H-RAD: what it reads, what its verdicts do, and that no verdict can change the text."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sbjax
from sbjax import (
    PEARL,
    ApplyModel,
    Autoregressive,
    Engine,
    KeyedNoise,
    Model,
    Predictor,
    PredictorConfig,
    Sampling,
    SpecBranch,
    generate,
    hrad,
    load_predictor,
    run,
    start,
)
from sbjax.engine import RUNNING
from sbjax.rounds import draft_and_check, finish_overlapped
from sbjax.testing import TableModel, small_llama
from sbjax.verification import Outcome

pytestmark = pytest.mark.usefixtures("quick_compile")
VOCAB, NEW, ROWS = 6, 40, 4
TABLE = TableModel(VOCAB)
PARAMS = {"target": TABLE.init(0, 1.5), "draft": TABLE.init(0, 1.5) | {}}
PARAMS["draft"]["table"] = PARAMS["draft"]["table"] + 0.7 * TABLE.init(1)["table"]
CONFIG = PredictorConfig(features=1, width=2, positions=3, hidden=(8, 4), line_hidden=(8,))
METHOD = SpecBranch(draft_length=3, branches=3, features=1, epsilon=0.5)
ENGINE = Engine(TABLE, TABLE, METHOD, VOCAB, widths=(METHOD.line_length,))
PROMPTS = [[1], [2, 3, 4], [5, 0], [3, 3, 1, 2]]


def begin(engine: Engine, params, temperature: float) -> sbjax.State:
    noise = KeyedNoise.create(jnp.full(ROWS, 3, jnp.uint32), jnp.arange(ROWS, dtype=jnp.uint32))
    sampling = Sampling.create(ROWS, temperature)
    return start(engine, params, PROMPTS, [NEW] * ROWS, sampling=sampling, noise=noise, slots=64)


def texts(state: sbjax.State) -> list[list[int]]:
    return [row[:n].tolist() for row, n in zip(np.asarray(state.text), np.asarray(state.length), strict=True)]


def says(verdict: int) -> dict:
    """Parameters of a predictor whose verdict is always the same."""
    params = jax.tree.map(jnp.zeros_like, Predictor.create(CONFIG, 0).params)
    params["target"]["layers"]["2"]["bias"] = jax.nn.one_hot(verdict, 3, dtype=jnp.float32)
    return params


def wild(config: PredictorConfig, seed: int):
    """Random parameters, large enough that verdicts change from round to round."""
    return jax.tree.map(lambda leaf: 6 * leaf, Predictor.create(config, seed).params)


@jax.jit
def watched(params, state):
    """A round, its outcome, and what the predictor saw of it."""
    state, branches, checked, outcome = draft_and_check(ENGINE, params, state)
    inputs = hrad.target_inputs(ENGINE, params["target"], checked.features, outcome)
    logits = hrad.target_logits(ENGINE, params, checked.features, outcome)
    state = finish_overlapped(ENGINE, params["predictor"], state, branches, checked, outcome, logits)
    return state, outcome, inputs


def test_the_states_read_are_those_that_produced_the_outcome():
    params = {**PARAMS, "predictor": says(hrad.EVERYTHING)}
    state, accepted = begin(ENGINE, PARAMS, 1.0), set()
    for _ in range(10):
        state, outcome, inputs = watched(params, state)
        accepted |= set(np.asarray(outcome.accepted).tolist())
        text = [row for row in texts(state) if len(row) > 2]
        wanted = np.array([[row[-3:-1], [0, row[-1]]] for row in text], np.float32)
        wanted /= np.sqrt(np.square(wanted).mean(-1, keepdims=True) + 1e-6)
        np.testing.assert_allclose(inputs[-len(text) :], wanted, rtol=1e-5)
    assert accepted >= {0, 1, 2}


@pytest.mark.parametrize("verdict", range(3))
def test_a_verdict_decides_what_is_trunk(verdict):
    params = {**PARAMS, "predictor": says(verdict)}
    state, trunks = begin(ENGINE, PARAMS, 1.0), set()
    for _ in range(8):
        state, _, _ = watched(params, state)
        line = jax.tree.map(np.asarray, state.line)
        for row in np.flatnonzero(line.length > 1):
            all_of_it = line.length[row] - 1
            low = np.flatnonzero(line.drawn.confidence[row, :all_of_it] < METHOD.epsilon)
            wanted = (0, low[0] if len(low) else all_of_it, all_of_it)[verdict]
            assert line.trunk[row] == wanted
            trunks.add((wanted, all_of_it))
    counted = np.asarray(state.statistics.verdicts).sum(0)
    assert counted[verdict] == counted.sum() > 0 and len(trunks) > 1


def test_the_line_is_read_as_far_as_it_can_be_trunk():
    confidence = jnp.array([[0.5, 0.8, 0.1], [0.5, 0.8, 0.1], [0.5, 0.8, 0.1]], jnp.float32)
    found = hrad.line_inputs(confidence, jnp.array([0, 2, 3], jnp.int32), 2)
    wanted = [[1, 1, 1, 1, 1, 0], [0.5, 1, 0.5, 0.5, 0.5, 0.5], [0.5, 0.8, 0.5, 0.4, 0.4, 1]]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    # A line that is shorter than what the predictor looks at.
    found = hrad.line_inputs(confidence, jnp.array([0, 2, 3], jnp.int32), 4)
    np.testing.assert_allclose(found[2], [0.5, 0.8, 1, 1, 0.5, 0.4, 0.4, 0.4, 0.4, 0.5], rtol=1e-6)


def test_both_networks_have_their_say():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(60, 5, 1, 2)).astype(np.float32)
    index = np.arange(60, dtype=np.int32)
    params = {**PARAMS, "predictor": wild(CONFIG, 0)}

    @jax.jit
    def decided(params):
        outcome = Outcome(index % 5, index % VOCAB)
        logits = hrad.target_logits(ENGINE, params, jnp.asarray(states), outcome)
        confidence, length = jnp.asarray(rng.random((60, 6), np.float32)), jnp.full(60, 4, jnp.int32)
        both = hrad.decide(params["predictor"], logits, confidence, length)
        return both, hrad.decide({"target": None}, logits, confidence, length), logits

    both, alone, logits = decided(params)
    np.testing.assert_array_equal(alone, np.argmax(logits, -1))
    assert both.dtype == jnp.int32 and 0 < np.sum(both != alone) < 60


def test_a_verdict_that_is_not_sure_enough_is_undecided():
    logits = jnp.log(jnp.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.1, 0.8, 0.1]], jnp.float32))
    line = jnp.full((3, 4), 0.5, jnp.float32), jnp.full(3, 4, jnp.int32)
    wanted = {0.0: [0, 2, 1], 0.6: [1, 2, 1], 0.75: [1, 1, 1]}
    for trust, verdicts in wanted.items():
        np.testing.assert_array_equal(hrad.decide({}, logits, *line, trust), verdicts)
    with pytest.raises(ValueError, match=r"trust must be in \[0, 1\]"):
        SpecBranch(trust=1.5)


def test_without_a_predictor_every_verdict_is_undecided():
    outcome = Outcome(jnp.zeros(2, jnp.int32), jnp.zeros(2, jnp.int32))
    blind = dataclasses.replace(ENGINE, method=dataclasses.replace(METHOD, features=0))
    assert hrad.target_logits(blind, PARAMS, None, outcome) is None
    verdicts = hrad.decide(None, None, jnp.zeros((2, 6), jnp.float32), jnp.array([0, 5], jnp.int32))
    np.testing.assert_array_equal(verdicts, [hrad.UNDECIDED] * 2)


def test_no_verdict_changes_the_text():
    alone = Engine(TABLE, None, Autoregressive(), VOCAB)
    plain = {t: texts(run(alone, PARAMS, begin(alone, PARAMS, t), jnp.int32(NEW))) for t in (0.0, 1.0)}
    seen = np.zeros(3, int)
    for seed in range(6):
        params = {**PARAMS, "predictor": wild(CONFIG, seed)}
        for temperature, wanted in plain.items():
            state = begin(ENGINE, PARAMS, temperature)
            while np.any(np.asarray(state.status) == RUNNING):
                state, _, _ = watched(params, state)
            assert texts(state) == wanted
            seen += np.asarray(state.statistics.verdicts).sum(0)
    assert (seen > 0).all()


@pytest.fixture(scope="module")
def decoders():
    """A tiny random decoder as target, and a draft that is nearly the same."""
    model = small_llama(1, width=16, heads=2, kv_heads=1, mlp_width=24, vocab_size=20, max_length=64)
    params = jax.tree.map(lambda leaf: 4 * leaf, model.init(0))
    near = jax.tree.map(lambda leaf, other: leaf + 0.4 * other, params, model.init(1))
    return Model(model, params), Model(model, near)


def test_a_decoder_with_a_predictor_says_what_it_says_alone(decoders):
    target, draft = decoders
    config = PredictorConfig(features=1, width=16, positions=4, hidden=(8,))
    predictor = Predictor(config, wild(config, 1))
    settings = {"max_new_tokens": 16, "temperature": 0.8, "seed": 5}
    method = SpecBranch(draft_length=2, branches=2, head_start=0, features=1)
    fast = generate(target, [[1, 2], [3]], draft=draft, method=method, predictor=predictor, **settings)
    plain = generate(target, [[1, 2], [3]], **settings)
    assert [g.tokens for g in fast.generations] == [g.tokens for g in plain.generations]
    assert sum(fast.statistics["verdicts"]) > 0


def test_a_decoder_embeds_as_its_first_layer_reads(decoders):
    model, params = decoders[0].model, decoders[0].params
    tokens = jnp.array([[3, 1], [0, 7]], jnp.int32)
    wanted = params["embed_tokens"]["weight"][tokens] * model.config.embed_scale
    np.testing.assert_array_equal(model.embed(params, tokens), wanted)


def test_a_saved_predictor_is_the_same_when_loaded(tmp_path):
    predictor = Predictor(CONFIG, wild(CONFIG, 2), {"target": "large", "line_length": 6})
    predictor.save(tmp_path / "hrad")
    loaded = load_predictor(tmp_path / "hrad")
    assert loaded.config == CONFIG and loaded.about == predictor.about
    assert jax.tree.structure(loaded.params) == jax.tree.structure(predictor.params)
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, loaded.params, predictor.params)))
    with pytest.raises(sbjax.CheckpointError, match="exists already"):
        predictor.save(tmp_path / "hrad")
    smaller = Predictor.create(dataclasses.replace(CONFIG, positions=0), 0)
    smaller.save(tmp_path / "hrad", overwrite=True)
    assert set(load_predictor(tmp_path / "hrad").params) == {"target"}


def test_damaged_predictors_are_refused(tmp_path):
    with pytest.raises(sbjax.CheckpointError, match=r"no hrad\.json"):
        load_predictor(tmp_path)
    Predictor.create(CONFIG, 0).save(tmp_path / "hrad")
    file = tmp_path / "hrad" / "hrad.json"
    settings = json.loads(file.read_text())
    for changes, message in (
        ({"format": 2}, "format 2"),
        ({"hidden": [8, 5]}, "shape"),
        ({"hidden": "wide"}, "positive integers"),
        ({"width": -2}, "positive integers"),
        ({"hidden": [8, 4, 4]}, "damaged"),
    ):
        file.write_text(json.dumps(settings | changes))
        with pytest.raises(sbjax.CheckpointError, match=message):
            load_predictor(tmp_path / "hrad")
    del settings["positions"]
    file.write_text(json.dumps(settings))
    with pytest.raises(sbjax.CheckpointError, match="lacks positions"):
        load_predictor(tmp_path / "hrad")


def test_what_does_not_fit_the_engine_is_refused_by_name():
    with pytest.raises(ValueError, match=r'features=1\) does not go with rule="block"'):
        Engine(TABLE, TABLE, METHOD, VOCAB, rule="block")
    with pytest.raises(ValueError, match="reads more layers than the 1"):
        Engine(TABLE, TABLE, dataclasses.replace(METHOD, features=2), VOCAB)
    functions = (lambda *given: TABLE.forward(*given)[::2], TABLE.logits)
    bare = ApplyModel(*functions, TABLE.cache_spec, VOCAB, 64)
    with pytest.raises(ValueError, match="ApplyModel has no embed"):
        Engine(bare, TABLE, METHOD, VOCAB)
    Engine(dataclasses.replace(bare, embed_fn=TABLE.embed), TABLE, METHOD, VOCAB)
    Engine(TABLE, TABLE, METHOD, VOCAB, rule="token")
    Engine(bare, TABLE, dataclasses.replace(METHOD, features=0), VOCAB, rule="block")


def test_methods_and_predictors_that_do_not_go_together_are_refused():
    target, draft = Model(TABLE, PARAMS["target"]), Model(TABLE, PARAMS["draft"])
    fits = Predictor.create(CONFIG, 0)
    wide = Predictor.create(dataclasses.replace(CONFIG, width=3), 0)
    deep = Predictor.create(dataclasses.replace(CONFIG, features=2), 0)
    for method, predictor, message in (
        (METHOD, None, "needs a predictor"),
        (METHOD, wide, "targets of width 3, this one's is 2"),
        (METHOD, deep, r"reads 2 layers .* SpecBranch has features=1"),
        (dataclasses.replace(METHOD, features=0), fits, "SpecBranch has features=0"),
        (PEARL(3), fits, "PEARL has features=0"),
        (None, fits, "SpS has features=0"),
    ):
        with pytest.raises(ValueError, match=message):
            generate(target, [[1]], draft=draft, method=method, predictor=predictor, max_new_tokens=4)
    with pytest.raises(ValueError, match="needs a predictor"):
        run(ENGINE, PARAMS, begin(ENGINE, PARAMS, 0.0), jnp.int32(1))


def test_the_shipped_predictor_fits_the_default_pair():
    predictor = sbjax.load_default_predictor()
    target, draft = sbjax.load_default_pair()
    engine = Engine(target.model, draft.model, SpecBranch(features=4), target.model.vocab_size)
    predictor.require_fit(engine, target.params)
    assert predictor.about["target"] == "default_pair/target"
    figures = predictor.about["held_out"]
    assert figures["both"]["loss"] < min(
        figures[name]["loss"] for name in ("majority", "confidences", "features")
    )
