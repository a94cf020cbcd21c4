"""Every kernel, and a whole run of SpecBranch, compiled for real TPUs on a machine that has none.

It needs libtpu, as the extra ``tpu-aot`` installs it or where ``TPU_LIBRARY_PATH`` says.
"""

import functools
import importlib.util
import math
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from kernels_pallas import tuning
from kernels_pallas.adopt import adopt
from kernels_pallas.branch_attention import attention
from kernels_pallas.verify import picks
from sbjax import Engine, KeyedNoise, Sampling, SpecBranch
from sbjax.cache import KVCache
from sbjax.engine import create_state
from sbjax.loops.one_program import run
from sbjax.mesh import cache_sharding, row_sharding, shardings
from sbjax.testing import small_llama

CHIPS = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
pytestmark = pytest.mark.skipif(
    "TPU_LIBRARY_PATH" not in os.environ and importlib.util.find_spec("libtpu") is None,
    reason="no libtpu: install the extra tpu-aot",
)


@functools.cache
def chips(name: str) -> list:
    # Several test processes may compile at once.
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"
    return topologies.get_topology_desc(topology_name=CHIPS[name], platform="tpu").devices


def on(sharding, shape, dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def attention_shapes(array, b, t, n, m, h, slots, own, dtype):
    cache, new, bound = (b, m, slots, h), (b, m, own, h), array((b, t), jnp.int32)
    buffers = [array(shape, dtype) for shape in (cache, cache, new, new)]
    return array((b, t, n, h), dtype), *buffers[:2], bound, bound, *buffers[2:], array((b, t, own), bool)


def adopt_shapes(array, b, m, slots, h, tokens, dtype):
    old, new = array((b, m, slots, h), dtype), array((b, m, tokens, h), dtype)
    return old, old, new, new, array((b,), jnp.int32)


def copies(program: str, *shape: int) -> list[str]:
    """Instructions of a compiled program that copy a buffer of this shape."""
    buffer = rf"= \w+\[{','.join(map(str, shape))}\]\S* (?:copy|transpose|all-gather|pad)\("
    return [line for line in program.splitlines() if re.search(buffer, line)]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "shape",
    [(2, 8, 32, 8, 128, 8192, 8, jnp.bfloat16), (1, 16, 4, 1, 64, 8192, 128, jnp.float32)],
    ids=["8B", "one head"],
)
def test_attention(chip, shape):
    array = functools.partial(on, SingleDeviceSharding(chips(chip)[0]))
    call = jax.jit(functools.partial(attention, scale=0.1, implementation="tpu"))
    program = call.lower(*attention_shapes(array, *shape)).compile().as_text()
    assert program.count("tpu_custom_call") == 1
    b, _, _, m, h, slots, *_ = shape
    assert not copies(program, b, m, slots, h)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "shape",
    [(2, 8, 8192, 128, 8, jnp.bfloat16), (1, 4, 8192, 80, 16, jnp.float32)],
    ids=["whole lanes", "slots on lanes"],
)
def test_adopt(chip, shape):
    array = functools.partial(on, SingleDeviceSharding(chips(chip)[0]))
    call = jax.jit(functools.partial(adopt, implementation="tpu"), donate_argnums=(0, 1))
    compiled = call.lower(*adopt_shapes(array, *shape)).compile()
    assert compiled.as_text().count("tpu_custom_call") == 1
    assert not copies(compiled.as_text(), *shape[:4])
    # Both buffers are the results.
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= 2 * math.prod(shape[:4]) * jnp.dtype(shape[5]).itemsize


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("tokens", "vocab"), [(8, 151_936), (16, 262_144), (3, 32_003)])
def test_verify(chip, tokens, vocab):
    array = functools.partial(on, SingleDeviceSharding(chips(chip)[0]))
    settings = [array((2,), dtype) for dtype in (jnp.float32, jnp.int32, jnp.float32)]
    call = jax.jit(functools.partial(picks, implementation="tpu", log_probs=True))
    logits, keys = array((2, tokens, vocab), jnp.float32), array((2, tokens, 2), jnp.uint32)
    compiled = call.lower(logits, keys, *settings).compile()
    assert compiled.as_text().count("tpu_custom_call") == 1
    assert compiled.memory_analysis().output_size_in_bytes < 2**16  # nothing of the vocabulary's size


ROWS, SLOTS, VOCAB = 4, 4096, 1337


def pair(width: int, heads: int, mlp_width: int) -> Engine:
    """SpecBranch on a target of one layer, heads of 128, and a draft with one key/value head of 64."""
    shape = {"vocab_size": VOCAB, "max_length": SLOTS, "dtype": "bfloat16"}
    target = small_llama(1, width=width, heads=heads, kv_heads=heads // 4, mlp_width=mlp_width, **shape)
    draft = small_llama(1, width=width // 4, heads=heads // 2, kv_heads=1, mlp_width=mlp_width // 4, **shape)
    return Engine(target, draft, SpecBranch(2, branches=3), VOCAB, widths=(4,))


SMALL = pair(1024, 8, 1024)
WIDE = pair(4096, 32, 14_336)
"""As wide as Llama-3.1-8B: what XLA does with matrices that fit on the chip says nothing about large ones."""


def state_shapes(engine: Engine):
    def create():
        zeros = jnp.zeros(ROWS, jnp.uint32)
        caches = [KVCache.create(model.cache_spec, ROWS, SLOTS) for model in (engine.target, engine.draft)]
        length = jnp.ones(ROWS, jnp.int32)
        text, stops = jnp.zeros((ROWS, SLOTS), jnp.int32), jnp.zeros((ROWS, 8), jnp.int32)
        noise = KeyedNoise.create(zeros, zeros)
        return create_state(engine, text, length, length + 9, stops, Sampling.create(ROWS), noise, *caches)

    return jax.eval_shape(create)


def size(tree) -> int:
    """Bytes of all arrays, of keys without their type."""
    return sum(leaf.size * getattr(leaf.dtype, "itemsize", 8) for leaf in jax.tree.leaves(tree))


def compiled_run(engine: Engine, place, model_places):
    """The whole loop, its arguments where ``place(leaf)`` and ``model_places(model)`` say."""
    put = lambda leaf, sharding: on(sharding, leaf.shape, leaf.dtype)  # noqa: E731
    params = {
        name: jax.tree.map(put, model.abstract(), model_places(model))
        for name, model in (("target", engine.target), ("draft", engine.draft))
    }
    state = jax.tree.map(lambda leaf: put(leaf, place(leaf)), state_shapes(engine))
    count = jax.ShapeDtypeStruct((), jnp.int32)
    return run.lower(engine, params, state, put(count, place(count))).compile()


def kernels(program: str) -> set[str]:
    return set(
        re.findall(r"%(branch_attention|verify|adopt)\S* = .*custom_call_target=\"tpu_custom", program)
    )


@pytest.mark.parametrize(("chip", "engine"), [("v5e", WIDE), ("v5p", SMALL), ("v6e", SMALL)])
def test_a_whole_run_of_specbranch(chip, engine):
    here = SingleDeviceSharding(chips(chip)[0])
    place = lambda leaf: here  # noqa: E731
    with tuning.for_device(chips(chip)[0].device_kind):
        compiled = compiled_run(engine, place, lambda model: jax.tree.map(place, model.abstract()))
    program, memory = compiled.as_text(), compiled.memory_analysis()
    assert kernels(program) == {"branch_attention", "verify", "adopt"}
    state, params = state_shapes(engine), [engine.target.abstract(), engine.draft.abstract()]
    for leaf in jax.tree.leaves(state):
        assert leaf.ndim != 4 or not copies(program, *leaf.shape)
    # Parameters and state are held once, the state is updated in place, and beside them a round needs noise,
    # logits and little else. (Small matrices are laid out anew, which does not matter.)
    assert size((state, params)) <= memory.argument_size_in_bytes < 1.02 * size((state, params))
    assert memory.alias_size_in_bytes >= size(state)
    if engine is WIDE:
        assert memory.temp_size_in_bytes < 0.03 * size((state, params))


def test_a_whole_run_on_a_mesh_of_four():
    mesh = Mesh(np.array(chips("v5e")).reshape(2, 2), ("data", "model"))

    def place(leaf):
        if leaf.ndim == 4 and leaf.shape[2] == SLOTS:
            return cache_sharding(mesh, ROWS, leaf.shape[1])
        return row_sharding(mesh, ROWS, leaf) if leaf.ndim else NamedSharding(mesh, PartitionSpec())

    with jax.set_mesh(mesh):
        program = compiled_run(SMALL, place, lambda model: shardings(model, mesh)).as_text()
    assert kernels(program) == {"branch_attention", "verify", "adopt"}
    # Every device has the caches of its own rows and heads; none is gathered or copied.
    assert re.search(rf"bf16\[{ROWS // 2},1,{SLOTS},128\]", program)
    for rows in (ROWS, ROWS // 2):
        for heads, width in ((2, 128), (1, 128), (1, 64)):
            assert not copies(program, rows, heads, SLOTS, width)
