import gc
import json
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from sbjax.cache import KVCache
from sbjax.checkpoints import CheckpointError, convert, load
from sbjax.checkpoints.shards import SafetensorsShard
from sbjax.checkpoints.tree import leaf_at
from sbjax.mesh import make_mesh, shardings
from sbjax.models.families import UnsupportedModel, from_hf_config, weight_table


@pytest.fixture
def copy(converted, tmp_path):
    """A converted checkpoint that may be damaged."""
    return shutil.copytree(converted, tmp_path / "copy")


def data_files(folder):
    return sorted(path for path in (folder / "params").rglob("d/*"))


def logits(checkpoint):
    model, tokens = checkpoint.model, jnp.arange(6, dtype=jnp.int32)[None]

    def run(params):
        cache = KVCache.create(model.cache_spec, 1, 8)
        return model.logits(params, model.forward(params, tokens, tokens, cache).hidden)

    # Without LLVM's optimiser a program compiles in half the time; what XLA makes of it is the same.
    quick = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})
    return np.asarray(quick(checkpoint.params))


def test_hugging_face_and_converted_folders_load_alike(converted):
    one, other = load(converted), load(converted.parent / "source")
    assert one.model == other.model
    assert jax.tree.structure(one.params) == jax.tree.structure(other.params)
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)


@pytest.mark.parametrize("kind", ["converted", "source"])
@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16"])
def test_dtype_is_the_one_asked_for_and_float32_on_cpu(converted, kind, dtype):
    checkpoint = load(converted.parent / kind, dtype)
    expected = jnp.dtype(dtype or "float32")
    assert checkpoint.model.config.dtype == expected.name
    assert {leaf.dtype for leaf in jax.tree.leaves(checkpoint.params)} == {expected}
    assert all(
        leaf.committed and leaf.devices() == {jax.devices()[0]} for leaf in jax.tree.leaves(checkpoint.params)
    )


def test_dtype_that_models_do_not_compute_in_is_refused(converted):
    with pytest.raises(UnsupportedModel, match="float16"):
        load(converted, "float16")


@pytest.mark.parametrize("kind", ["converted", "source"])
def test_parameters_go_straight_onto_a_mesh(converted, kind):
    whole, mesh = load(converted), make_mesh(2, 2, jax.devices()[:4])
    spread = load(converted.parent / kind, mesh=mesh)
    jax.tree.map(np.testing.assert_array_equal, whole.params, spread.params)
    placed = jax.tree.map(lambda leaf: leaf.sharding, spread.params)
    assert placed == shardings(spread.model, mesh)
    up = spread.params["layers"]["0"]["mlp"]["up_proj"]["weight"]
    assert [shard.data.shape for shard in up.addressable_shards] == [(6, 8)] * 4
    np.testing.assert_allclose(logits(spread), logits(whole), atol=1e-5)


def test_devices_only_read_their_part(converted, monkeypatch):
    asked = {}
    read = SafetensorsShard.read

    def spy(self, name, index=None):
        part = read(self, name, index)
        asked.setdefault(name, []).append(part.shape)
        return part

    monkeypatch.setattr(SafetensorsShard, "read", spy)
    load(converted.parent / "source", mesh=make_mesh(1, 4, jax.devices()[:4]))
    assert asked["model.layers.0.mlp.up_proj.weight"] == [(3, 8)] * 4
    assert asked["model.layers.0.self_attn.q_proj.weight"] == [(2, 8)] * 4


def test_arrays_are_stored_in_chunks(make_tensors, config, write_folder, tmp_path):
    config |= {"vocab_size": 1000, "hidden_size": 3200, "tie_word_embeddings": True, "intermediate_size": 4}
    config |= {"num_hidden_layers": 1, "head_dim": 2}
    folder = convert(write_folder(config, make_tensors(config, np.float32)), tmp_path / "out")
    # The embedding has 12.8 MB, which must be some chunks, so that a quarter is read without the rest.
    metadata = ocp.PyTreeCheckpointer().metadata(folder / "params").item_metadata
    chunk = metadata["embed_tokens"]["weight"].storage.chunk_shape
    assert np.prod(chunk) * 4 <= 4 << 20


def test_truncated_array_file_is_named(copy):
    path = max(data_files(copy), key=lambda file: file.stat().st_size)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=f"{path.name}: damaged, it has .* bytes instead of"):
        load(copy)


def test_changed_array_file_is_named(copy):
    path = max(data_files(copy), key=lambda file: file.stat().st_size)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=f"{path.name}: its checksum is wrong"):
        load(copy)


def test_missing_array_file_is_named(copy):
    path = data_files(copy)[0]
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path.name}: missing"):
        load(copy)


@pytest.mark.parametrize("name", ["manifest.ocdbt", "_METADATA"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_damage_that_is_not_looked_for_is_still_an_error(copy, name):
    path = copy / "params" / name
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match="params: damaged or incomplete, Orbax cannot read it"):
        load(copy, verify=False)
    gc.collect()  # what Orbax dropped reports itself here, not in the next test


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "sbjax.json is not valid JSON"),
        ('{"format": 2}', "format 2, this version of sbjax reads format 1"),
        ('{"format": 1}', "has no files, ignored"),
    ],
)
def test_damaged_record_is_named(copy, content, message):
    (copy / "sbjax.json").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        load(copy)


def test_conversion_without_its_record_is_incomplete(copy):
    (copy / "sbjax.json").unlink()
    with pytest.raises(CheckpointError, match="an interrupted conversion"):
        load(copy)


def test_exchanged_config_is_noticed(copy, config):
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match=r"not of the model that was converted.*layers\.2"):
        load(copy)


def test_half_precision_checkpoints_load_as_float32(config, make_tensors, write_folder):
    tensors = make_tensors(config, np.float16)
    params = load(write_folder(config, tensors)).params
    for name, weight in weight_table(from_hf_config(config)).items():
        np.testing.assert_array_equal(leaf_at(params, weight.path), tensors[name].astype(np.float32))


def test_mixed_dtypes_load_as_one(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    tensors["model.norm.weight"] = tensors["model.norm.weight"].astype(np.float32) + 1e-3
    checkpoint = load(write_folder(config, tensors), "bfloat16")
    found = checkpoint.params["norm"]["weight"]
    np.testing.assert_array_equal(found, tensors["model.norm.weight"].astype(ml_dtypes.bfloat16))
