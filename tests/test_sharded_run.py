"""One program where its parameters are: on one device, compiled once, and on a mesh, with the same text."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import (
    PEARL,
    Autoregressive,
    Engine,
    KeyedNoise,
    Sampling,
    SpS,
    run,
    start,
)
from sbjax.mesh import make_mesh, shardings
from sbjax.testing import small_llama

pytestmark = pytest.mark.usefixtures("quick_compile")
ROWS = 4
COMPILATION = "/jax/core/compile/backend_compile_duration"


TARGET, DRAFT = small_llama(2), small_llama(1)


def text(method, place) -> np.ndarray:
    engine = Engine(TARGET, DRAFT, method, 60)
    params = {"target": place(TARGET, TARGET.init(0)), "draft": place(DRAFT, DRAFT.init(1))}
    ids = jnp.arange(ROWS, dtype=jnp.uint32)
    state = start(
        engine,
        params,
        [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]],
        [8, 9, 10, 11],
        sampling=Sampling.create(ROWS, temperature=[0.0, 1.0, 0.7, 1.0]),
        noise=KeyedNoise.create(jnp.zeros(ROWS, jnp.uint32), ids),
        slots=32,
    )
    while bool(np.any(np.asarray(state.status) == 0)):
        state = run(engine, params, state, jnp.int32(2))
    dead = np.arange(32)[None] >= np.asarray(state.length)[:, None]
    return np.where(dead, -1, np.asarray(state.text))


@pytest.fixture(scope="module")
def plain() -> np.ndarray:
    return text(Autoregressive(), lambda _, params: params)


def test_one_device_bound_parameters(plain):
    device = jax.devices()[1]
    before = run._cache_size()
    bound = text(SpS(3), lambda _, params: jax.device_put(params, device))
    assert run._cache_size() == before + 1
    np.testing.assert_array_equal(bound, plain)


def test_a_mesh_gives_the_same_text_from_one_compilation(plain):
    mesh = make_mesh(data=2, model=2, devices=jax.devices()[:4])

    def place(which, params):
        return jax.device_put(params, shardings(which, mesh))

    compiled = collections.Counter()
    jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.update([event]))
    for method in (SpS(3), PEARL(2)):  # with and without arrays that are empty
        np.testing.assert_array_equal(text(method, place), plain)
        before = compiled[COMPILATION]
        assert before > 0
        np.testing.assert_array_equal(text(method, place), plain)
        assert compiled[COMPILATION] == before
