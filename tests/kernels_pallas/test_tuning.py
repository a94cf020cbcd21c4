"""Block shapes come from the table for the kind of device traced for, or from the kernel itself."""

import functools
import json

import jax
import jax.numpy as jnp
import pytest

from kernels_pallas import block_table, tuning
from kernels_pallas.branch_attention import attention
from kernels_pallas.branch_attention import mosaic_gpu as gpu_attention
from kernels_pallas.verify import picks

KERNEL = "branch_attention/tpu"
SHAPE = "queries=16 own=128 h=128 s=1024 bfloat16"
array = jax.ShapeDtypeStruct


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Replaces the table for one test; returns a function that does it."""

    def put(content):
        path = tmp_path / "table.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        monkeypatch.setattr(tuning, "TABLE", path)
        _forget()
        return path

    yield put
    _forget()


def _forget():
    tuning._lookup.cache_clear()
    tuning._committed.cache_clear()
    # What was traced with another table.
    jax.clear_caches()


def entry(**blocks):
    return {"blocks": blocks, "by": "hand"}


def one(slots: int, shape=SHAPE, kind="TPU v5 lite"):
    return {kind: {KERNEL: {shape: entry(slots=slots)}}}


def attention_shapes(slots=1024, dtype=jnp.bfloat16):
    cache, new, bound = (
        array((1, 2, slots, 128), dtype),
        array((1, 2, 8, 128), dtype),
        array((1, 3), jnp.int32),
    )
    return array((1, 3, 4, 128), dtype), cache, cache, bound, bound, new, new, array((1, 3, 8), bool)


def steps(run=None, **options) -> int:
    """Blocks of the prefix that the kernel walks, as traced."""
    run = run or functools.partial(attention, scale=0.1, implementation="tpu")
    traced = jax.make_jaxpr(run)(*attention_shapes(**options))
    (call,) = (eqn for eqn in _equations(traced.jaxpr) if eqn.primitive.name == "pallas_call")
    return call.params["grid_mapping"].grid[2]


def _equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda x: hasattr(x, "jaxpr") or hasattr(x, "eqns")):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def test_the_table_in_the_package_is_valid_and_says_how_it_was_found():
    table = block_table.read_table(tuning.TABLE)
    assert {"TPU v5 lite", "TPU v5", "TPU v6 lite"} <= set(table)
    for kernels in table.values():
        assert {"branch_attention/tpu", "verify/tpu"} <= set(kernels)
        for entries in kernels.values():
            for found in entries.values():
                assert found["by"] in ("cost", "time") and found["jax"]
                assert found["microseconds"] <= found["default_microseconds"]


def test_an_entry_changes_the_block_and_no_entry_does_not(table):
    table(one(256))
    assert steps() == 2  # on CPU: the default, 512
    with tuning.for_device("TPU v5 lite"):
        assert steps() == 4
        assert steps(dtype=jnp.float32) == 2
    with tuning.for_device("TPU v6 lite"):
        assert steps() == 2


def test_what_was_traced_for_another_device_is_not_used_again(table):
    table(one(256))
    # The same function object, so that only the device tells its traces apart.
    run = jax.jit(functools.partial(attention, scale=0.1, implementation="tpu"))
    assert steps(run) == 2
    with tuning.for_device("TPU v5e"):
        assert steps(run) == 4
    assert steps(run) == 2


def test_the_kind_is_that_of_the_context_then_of_the_mesh_then_of_the_device(monkeypatch):
    class Fake:
        device_kind = "NVIDIA H200"

    monkeypatch.setattr(jax, "devices", lambda: [Fake])
    assert tuning.device_kind() == "NVIDIA H200"
    with jax.set_mesh(jax.sharding.Mesh([jax.local_devices()[0]], ("data",))):
        assert tuning.device_kind() == "cpu"
        with tuning.for_device("TPU v5p"):
            assert tuning.device_kind() == "TPU v5"


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ("queries=16 own=128 h=128 s=2048 bfloat16", 256),
        ("queries=8 own=128 h=128 s=1024 bfloat16", 256),
        ("queries=16 own=128 h=128 s=4096 bfloat16", None),
        ("queries=32 own=128 h=128 s=1024 bfloat16", None),
        ("queries=16 own=256 h=128 s=1024 bfloat16", None),
        ("queries=16 own=128 h=64 s=1024 bfloat16", None),
        ("queries=16 own=128 h=128 s=1024 float32", None),
    ],
)
def test_a_neighbour_serves_only_where_it_is_safe(shape, found):
    blocks = block_table.nearest(KERNEL, shape, one(256)["TPU v5 lite"][KERNEL])
    assert blocks == (found and {"slots": found})


def test_of_several_neighbours_the_nearest_serves():
    entries = {
        f"queries={queries} own=128 h=128 s={slots} bfloat16": entry(slots=size)
        for queries, slots, size in [(16, 1024, 128), (16, 2048, 256), (32, 1024, 384)]
    }
    near = functools.partial(block_table.nearest, KERNEL, entries=entries)
    assert near("queries=16 own=128 h=128 s=1792 bfloat16") == {"slots": 256}
    assert near("queries=24 own=128 h=128 s=1280 bfloat16") == {"slots": 384}
    assert near("queries=16 own=128 h=128 s=2048 bfloat16") == {"slots": 256}


def test_a_neighbours_block_is_cut_to_what_divides_the_slots(table):
    table(one(1024))
    with tuning.for_device("TPU v5 lite"):
        assert steps(slots=1024) == 1
        assert steps(slots=1536) == 2


def test_verify_takes_its_chunk_from_the_table(table):
    table({"TPU v5": {"verify/tpu": {"v=4096": entry(chunk=1024)}}})
    length, (row, number) = (1, 2), ((1,), jnp.float32)
    shapes = [array((*length, 4096), number), array((*length, 2), jnp.uint32)]
    shapes += [array(row, number), array(row, jnp.int32), array(row, number)]
    run = functools.partial(picks, implementation="tpu")

    def traced():
        return str(jax.make_jaxpr(run)(*shapes))

    default = traced()
    with tuning.for_device("TPU v5"):
        tuned = traced()
    table({"TPU v5": {"verify/tpu": {"v=4096": entry(chunk=2048)}}})
    with tuning.for_device("TPU v5"):
        assert traced() == default != tuned


def test_the_gpu_kernel_takes_its_blocks_from_the_table(table):
    shape = "queries=64 h=128 s=1024 bfloat16"
    table({"NVIDIA H200": {"branch_attention/gpu": {shape: entry(slots=128, stages=3)}}})
    run = functools.partial(gpu_attention.attention, scale=0.1)
    plain = jax.jit(run).trace(*attention_shapes()).lower(lowering_platforms=("cuda",)).as_text()
    with tuning.for_device("NVIDIA H200"):
        tuned = jax.jit(run).trace(*attention_shapes()).lower(lowering_platforms=("cuda",)).as_text()
    blocks = functools.partial(run, blocks=gpu_attention.Blocks(128, stages=3))
    assert plain != tuned
    assert tuned == jax.jit(blocks).trace(*attention_shapes()).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no JSON"),
        ([], "the table must be an object"),
        ({"TPU v5": 3}, "TPU v5 must be an object"),
        ({"TPU v5": {"attention": {SHAPE: entry(slots=128)}}}, "no such kernel, only branch_attention/tpu"),
        (one(100), "slots is 100, it must be a multiple of 128"),
        (one(True), "slots is True"),
        (one(384), "slots=384 does not divide s=1024"),
        (one(128, "queries=16 s=1024"), "a shape of this kernel has queries, own, s, h, dtype"),
        (one(128, SHAPE.replace("own=128", "own=0")), "own is '0', a size is expected"),
        (one(128, SHAPE.replace("bfloat16", "int8")), "'int8' is neither a size nor one of"),
        (one(16384, "queries=16 own=128 h=256 s=16384 bfloat16"), "do not fit"),
        ({"TPU v5": {KERNEL: {SHAPE: {"slots": 128}}}}, '"blocks" must have slots'),
        ({"TPU v5": {"verify/tpu": {"v=600": entry(chunk=1024)}}}, "chunk=1024 is more than v=600"),
        (
            {"H": {"branch_attention/gpu": {"queries=64 h=128 s=1024 bfloat16": entry(slots=128, stages=4)}}},
            "do not fit",
        ),
    ],
)
def test_a_bad_table_is_refused_by_file_and_entry(table, content, said):
    path = table(content)
    with tuning.for_device("TPU v5"), pytest.raises(ValueError, match=r"table\.json: ") as error:
        steps()
    assert said in str(error.value) and str(path) in str(error.value)
