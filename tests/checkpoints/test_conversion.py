import json

import jax
import ml_dtypes
import numpy as np
import pytest

from sbjax.checkpoints import CheckpointError, convert, export, load
from sbjax.checkpoints.record import read_record
from sbjax.checkpoints.shards import open_shard
from sbjax.checkpoints.tree import leaf_at
from sbjax.models.families import UnsupportedModel, from_hf_config, weight_table

HEAD, EMBEDDING, NORM = "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"


def read_all(folder):
    """Every tensor of a Hugging Face folder by name."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open_shard(path) as shard:
            tensors |= {name: shard.read(name) for name in shard.tensors}
    return tensors


def assert_same_bytes(found, expected):
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("dtype", ["keep", "float32"])
def test_there_and_back_is_byte_equal(config, make_tensors, write_folder, tmp_path, dtype):
    tensors = make_tensors(config)
    tensors[NORM] = tensors[NORM].astype(np.float32)  # mixed dtypes in one file
    tensors[HEAD] = tensors[HEAD].astype(np.float16)
    names = sorted(tensors)
    source = write_folder(config, *({n: tensors[n] for n in names[k::3]} for k in range(3)))
    out = convert(source, tmp_path / "out", dtype=dtype)
    back = export(out, tmp_path / "back", max_shard_size="1KB")
    assert_same_bytes(read_all(back), tensors)
    assert (back / "config.json").read_bytes() == (source / "config.json").read_bytes()
    assert len(list(back.glob("*.safetensors"))) > 1
    index = json.loads((back / "model.safetensors.index.json").read_text())
    assert sorted(index["weight_map"]) == names
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in tensors.values())


def test_parameters_are_the_source_values_at_their_paths(config, make_tensors, write_folder, tmp_path):
    tensors = make_tensors(config)
    out = convert(write_folder(config, tensors), tmp_path / "out")
    checkpoint = load(out)
    table = weight_table(from_hf_config(config))
    for name, weight in table.items():
        found = leaf_at(checkpoint.params, weight.path)
        np.testing.assert_array_equal(found, tensors[name].astype(np.float32))
    assert jax.tree.structure(checkpoint.params) == jax.tree.structure(checkpoint.model.abstract())
    assert checkpoint.config == config
    assert checkpoint.folder == out


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrowing_casts_and_says_so(config, make_tensors, write_folder, tmp_path, dtype):
    config["torch_dtype"] = "float32"
    tensors = make_tensors(config, np.float32)
    out = convert(write_folder(config, tensors), tmp_path / "out", dtype=dtype)
    assert set(read_record(out).source_dtypes.values()) == {"float32"}
    assert set(read_record(out).stored_dtypes.values()) == {dtype}
    back = export(out, tmp_path / "back")
    narrow = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}[dtype]
    assert_same_bytes(read_all(back), {name: array.astype(narrow) for name, array in tensors.items()})
    assert json.loads((back / "config.json").read_text()) == config | {"torch_dtype": dtype}


def test_values_that_do_not_fit_are_refused(config, make_tensors, write_folder, tmp_path):
    tensors = make_tensors(config)
    tensors[NORM][3] = 1e6
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight has values that float16 cannot hold"):
        convert(write_folder(config, tensors), tmp_path / "out", dtype="float16")
    assert not list(tmp_path.glob("out*"))


def test_float64_cannot_be_kept_but_cast(config, make_tensors, write_folder, tmp_path):
    tensors = make_tensors(config) | {NORM: np.ones(8)}
    source = write_folder(config, tensors)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight is float64.*choose the dtype float32"):
        convert(source, tmp_path / "out")
    assert (
        load(convert(source, tmp_path / "out", dtype="float32")).params["norm"]["weight"].dtype == np.float32
    )


def test_unknown_dtype_is_refused(source, tmp_path):
    with pytest.raises(CheckpointError, match="dtype 'int8' is not supported, use keep, float32"):
        convert(source, tmp_path / "out", dtype="int8")


def test_tied_head_is_stored_once_and_a_redundant_one_comes_back(
    config, make_tensors, write_folder, tmp_path
):
    config["tie_word_embeddings"] = True
    tensors = make_tensors(config)
    tensors[HEAD] = tensors[EMBEDDING].copy()
    out = convert(write_folder(config, tensors), tmp_path / "out", dtype="float32")
    assert "lm_head" not in load(out).params
    assert read_record(out).redundant == {HEAD: EMBEDDING}
    assert_same_bytes(read_all(export(out, tmp_path / "back")), tensors)


def test_files_beside_the_weights_go_along(source, tmp_path):
    names = ("generation_config.json", "tokenizer.json", "tokenizer.model", "chat_template.jinja")
    for name in names:
        (source / name).write_bytes(name.encode())
    (source / "training_args.bin").write_bytes(b"")
    out = convert(source, tmp_path / "out")
    back = export(out, tmp_path / "back")
    for folder, own in ((out, {"params", "sbjax.json"}), (back, {"model.safetensors"})):
        assert {path.name for path in folder.iterdir()} == {"config.json", *names, *own}
        assert all((folder / name).read_bytes() == name.encode() for name in names)


def test_unsupported_models_are_refused_before_anything_is_written(config, write_folder, tmp_path):
    config["quantization_config"] = {"quant_method": "gptq"}
    with pytest.raises(UnsupportedModel, match="gptq"):
        convert(write_folder(config), tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


def test_converted_folders_are_not_converted_again(converted, tmp_path):
    with pytest.raises(CheckpointError, match="is converted already"):
        convert(converted, tmp_path / "out")


@pytest.mark.parametrize("place", ["", "inside", ".."])
def test_result_must_not_touch_the_source(source, place):
    out = source / place
    with pytest.raises(CheckpointError, match="must be folders apart"):
        convert(source, out, overwrite=True)
    assert (source / "model.safetensors").is_file()


def test_progress_bar_reaches_the_end(source, tmp_path, capsys):
    convert(source, tmp_path / "out", progress=True)
    shown = capsys.readouterr()
    assert "Converting to out" in shown.err
    assert shown.out == ""
