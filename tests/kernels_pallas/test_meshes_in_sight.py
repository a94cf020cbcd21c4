"""Wherever the engine runs a model that lies on a mesh, its kernels are traced under that mesh.

A kernel that does not see the mesh cannot be cut, which would be found out on accelerators only.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import sbjax
from kernels_pallas import branch_attention, tuning
from sbjax.loops import loop_of
from sbjax.mesh import shardings
from sbjax.recording import Recorder
from sbjax.step_timing import draft_timer, target_timer
from sbjax.testing import small_llama

pytestmark = pytest.mark.usefixtures("quick_compile")
TARGET, DRAFT = small_llama(1), small_llama(1, width=16, heads=2)
ENGINE = sbjax.Engine(TARGET, DRAFT, sbjax.SpecBranch(2, branches=2), 61)


@pytest.fixture
def seen(monkeypatch):
    """How many devices the mesh has that every kernel was traced under; 0 without one."""
    kind, found = tuning.device_kind, []

    def looked():
        found.append(jax.sharding.get_abstract_mesh().size)
        return kind()

    branch_attention._attention.cache_clear()
    jax.clear_caches()
    monkeypatch.setattr(tuning, "device_kind", looked)
    return found


def spread(target: slice, draft: slice):
    devices = np.array(jax.devices())
    places = {"target": (TARGET, devices[target]), "draft": (DRAFT, devices[draft])}
    return {
        name: jax.device_put(model.init(0), shardings(model, Mesh(found[None], ("data", "model"))))
        for name, (model, found) in places.items()
    }


def begin(params):
    zeros = jnp.zeros(1, jnp.uint32)
    noise, sampling = sbjax.KeyedNoise.create(zeros, zeros), sbjax.Sampling.create(1)
    return sbjax.start(ENGINE, params, [[1, 2]], [8], sampling=sampling, noise=noise)


@pytest.mark.parametrize("apart", [False, True], ids=["one mesh", "two meshes"])
def test_prefill_and_rounds(seen, apart):
    params = spread(slice(2), slice(2, 4) if apart else slice(2))
    state = loop_of(params)(ENGINE, params, begin(params), jnp.int32(9))
    assert int(state.length[0]) == 10
    assert len(seen) > 5 and set(seen) == {2}


def test_a_recorder(seen):
    params = spread(slice(2), slice(2))
    Recorder().step(ENGINE, params, begin(params))
    assert len(seen) > 5 and set(seen) == {2}


def test_step_timers(seen):
    params = spread(slice(2), slice(2))
    target_timer(TARGET, params["target"], 2)()
    draft_timer(DRAFT, params["draft"], 2)()
    assert len(seen) > 2 and set(seen) == {2}
