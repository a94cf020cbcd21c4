"""Draft and target on meshes of their own: the tokens of one program, and no hidden wait for a device."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.array import ArrayImpl

from sbjax import Engine, KeyedNoise, Model, Sampling, generate, run, start
from sbjax.engine import RUNNING
from sbjax.loops import two_meshes
from sbjax.mesh import make_mesh, shardings
from sbjax.methods import PEARL, SpecBranch, SpS
from sbjax.testing import small_llama

pytestmark = pytest.mark.usefixtures("quick_compile")
ROWS = 4


TARGET, DRAFT = small_llama(2, kv_heads=4), small_llama(1, kv_heads=4)
PARAMS = {"target": TARGET.init(0), "draft": DRAFT.init(1)}
METHODS = {"PEARL": PEARL(2), "outcomes": SpecBranch(2, branches=3, epsilon=0.05)}


def begin(engine: Engine, params):
    return start(
        engine, params, [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]], [8, 9, 24, 11],
        sampling=Sampling.create(ROWS, temperature=[0.0, 1.0, 0.7, 1.0]),
        noise=KeyedNoise.create(jnp.zeros(ROWS, jnp.uint32), jnp.arange(ROWS, dtype=jnp.uint32)), slots=48,
    )  # fmt: skip


def finish(loop, engine: Engine, params, rounds: int = 100):
    """The state at the end, and the text with everything behind it blanked."""
    state = begin(engine, params)
    while np.any(np.asarray(state.status) == RUNNING):
        state = loop(engine, params, state, rounds)
    state = jax.tree.map(np.asarray, state.replace(noise=None))
    dead = np.arange(state.text.shape[1])[None] >= state.length[:, None]
    return state, np.where(dead, -1, state.text)


def one_program(engine, params, state, rounds):
    return run(engine, params, state, jnp.int32(rounds))


def spread(target_devices: int) -> dict:
    """The draft on device 0, the target on some of the others (on device 0's neighbours)."""
    devices = jax.devices()
    target = make_mesh(data=1, model=target_devices, devices=devices[-target_devices:])
    draft = make_mesh(data=1, model=1, devices=devices[:1])
    homes = {"target": (TARGET, target), "draft": (DRAFT, draft)}
    return {name: jax.device_put(PARAMS[name], shardings(*home)) for name, home in homes.items()}


@pytest.mark.parametrize(("name", "target_devices"), [("PEARL", 1), ("outcomes", 2), ("PEARL", 4)])
def test_the_tokens_and_counters_are_those_of_one_program(name, target_devices):
    engine = Engine(TARGET, DRAFT, METHODS[name], 60)
    wanted, text = finish(one_program, engine, PARAMS)
    found, other = finish(two_meshes.run, engine, spread(target_devices))
    np.testing.assert_array_equal(other, text)
    for field in wanted.statistics.__dataclass_fields__:
        np.testing.assert_array_equal(
            getattr(found.statistics, field), getattr(wanted.statistics, field), err_msg=field
        )


def test_calls_of_few_rounds_give_the_same_text():
    engine = Engine(TARGET, DRAFT, METHODS["outcomes"], 60)
    _, text = finish(one_program, engine, PARAMS)
    for rounds in (1, 2, 3):
        np.testing.assert_array_equal(finish(two_meshes.run, engine, spread(2), rounds)[1], text)


@contextlib.contextmanager
def only_counted_reads(monkeypatch):
    """Any look at an array's value raises, unless it is made by ``host_read``."""
    read, value = two_meshes.host_read, ArrayImpl._value
    allowed = []

    def counted(array):
        allowed.append(None)
        try:
            return read(array)
        finally:
            allowed.pop()

    def guarded(self):
        if not allowed:
            raise AssertionError("the loop looked at an array")
        return value.fget(self)

    counted.count = 0
    with monkeypatch.context() as patch:
        patch.setattr(two_meshes, "host_read", counted)
        patch.setattr(ArrayImpl, "_value", property(guarded))
        patch.setattr(ArrayImpl, "__array__", lambda self, *args, **options: np.array(guarded(self)))
        patch.setattr(ArrayImpl, "block_until_ready", lambda self: guarded(self))
        yield counted


def test_the_loop_reads_one_flag_a_round_and_nothing_else(monkeypatch):
    engine, params = Engine(TARGET, DRAFT, METHODS["outcomes"], 60), spread(2)
    two_meshes.run(engine, params, begin(engine, params), 3)
    state = begin(engine, params)
    with only_counted_reads(monkeypatch) as counted:
        with pytest.raises(AssertionError, match="looked at an array"):
            bool(state.status[0] == 0)
        state = two_meshes.run(engine, params, state, 5)
    assert counted.count == 5
    assert int(np.asarray(state.statistics.rounds).max()) == 5


def test_at_most_two_rounds_are_under_way(monkeypatch):
    engine, params = Engine(TARGET, DRAFT, METHODS["PEARL"], 60), spread(1)
    dispatched, most, read = [], [], two_meshes.host_read
    finish_round = two_meshes._finish

    def noted(*args):
        dispatched.append(None)
        most.append(len(dispatched))
        return finish_round(*args)

    def reading(array):
        dispatched.pop()
        return read(array)

    reading.count = 0
    monkeypatch.setattr(two_meshes, "_finish", noted)
    monkeypatch.setattr(two_meshes, "host_read", reading)
    two_meshes.run(engine, params, begin(engine, params), 8)
    assert max(most) == two_meshes.RUN_AHEAD == 2 and not dispatched


def test_nothing_compiles_after_the_first_rounds():
    engine, params = Engine(TARGET, DRAFT, METHODS["PEARL"], 60), spread(2)
    state = two_meshes.run(engine, params, begin(engine, params), 2)
    programs = (two_meshes._answer, two_meshes._propose, two_meshes._finish, two_meshes._ask)
    before = [program._cache_size() for program in programs]
    state = two_meshes.run(engine, params, state, 100)
    finish(two_meshes.run, engine, params, 3)
    assert [program._cache_size() for program in programs] == before


def test_generate_takes_the_loop_of_where_the_models_lie(monkeypatch):
    def text(params, **options):
        models = [Model(model, params[name]) for name, model in (("target", TARGET), ("draft", DRAFT))]
        options = {"method": METHODS["outcomes"], "max_new_tokens": 6, "temperature": 1.0, **options}
        return generate(models[0], [[1, 2, 3], [4]], draft=models[1], **options)

    wanted, calls, loop = text(PARAMS), [], two_meshes.run
    monkeypatch.setattr(two_meshes, "run", lambda *args: calls.append(None) or loop(*args))
    found = text(spread(1))
    assert calls and [one.tokens for one in found.generations] == [one.tokens for one in wanted.generations]
    with pytest.raises(ValueError, match="SpS drafts and verifies in turn"):
        text(spread(1), method=SpS(2))


def test_what_two_meshes_cannot_do_is_refused_by_name():
    params = spread(1)
    with pytest.raises(ValueError, match=r"SpS drafts and verifies in turn.*PEARL or SpecBranch"):
        two_meshes.run(Engine(TARGET, DRAFT, SpS(2), 60), params, None, 1)
    with pytest.raises(ValueError, match='rule "token" needs whole rows'):
        two_meshes.run(Engine(TARGET, DRAFT, PEARL(2), 60, rule="token"), params, None, 1)
    shared = dict(spread(2), draft=jax.device_put(PARAMS["draft"], jax.devices()[-1]))
    with pytest.raises(ValueError, match="share devices"):
        begin(Engine(TARGET, DRAFT, PEARL(2), 60), shared)
