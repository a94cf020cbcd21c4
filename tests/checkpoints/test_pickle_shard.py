import builtins
import json
import os
import pickle

import numpy as np
import pytest
import torch

from sbjax.checkpoints import CheckpointError, convert, load
from sbjax.checkpoints.shards import open_shard


@pytest.fixture
def path(tmp_path):
    return tmp_path / "pytorch_model.bin"


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "legacy"])
def test_tensors_are_read_in_their_own_dtypes(path, new_format):
    values = torch.arange(12.0).reshape(3, 4)
    tensors = {"b": values.bfloat16(), "h": values.half(), "t": values.T, "p": torch.nn.Parameter(values)}
    torch.save(tensors, path, _use_new_zipfile_serialization=new_format)
    with open_shard(path) as shard:
        assert {name: info.dtype for name, info in shard.tensors.items()} == {
            "b": "bfloat16",
            "h": "float16",
            "t": "float32",
            "p": "float32",
        }
        for name in tensors:
            expected = values.T.numpy() if name == "t" else values.numpy()
            np.testing.assert_array_equal(shard.read(name).astype(np.float32), expected)
        np.testing.assert_array_equal(shard.read("b", (slice(1, 2),)).astype(np.float32), values[1:2].numpy())


@pytest.mark.parametrize("with_index", [True, False])
def test_shards_of_pickles_convert_like_safetensors(config, make_tensors, write_folder, tmp_path, with_index):
    tensors = make_tensors(config)
    as_torch = {name: torch.tensor(a.astype(np.float32)).bfloat16() for name, a in tensors.items()}
    folder = write_folder(config)
    names = sorted(as_torch)
    files = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
    for number, file in enumerate(files):
        torch.save({n: as_torch[n] for n in names[number::2]}, folder / file)
    if with_index:
        weight_map = {name: files[number % 2] for number, name in enumerate(names)}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    params = load(convert(folder, tmp_path / "out")).params
    np.testing.assert_array_equal(
        params["layers"]["1"]["mlp"]["up_proj"]["weight"],
        tensors["model.layers.1.mlp.up_proj.weight"].astype(np.float32),
    )


@pytest.mark.parametrize("new_format", [True, False], ids=["zip", "legacy"])
def test_code_is_refused_and_not_run(path, tmp_path, new_format):
    mark = tmp_path / "was_run"
    torch.save(
        {"w": torch.ones(2), "x": Evil(f"touch {mark}")}, path, _use_new_zipfile_serialization=new_format
    )
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: refused.*system.*could run code"):
        open_shard(path)
    assert not mark.exists()


def test_plain_pickle_with_code_is_refused_and_not_run(path, tmp_path):
    mark = tmp_path / "was_run"
    path.write_bytes(pickle.dumps({"x": Evil(f"touch {mark}")}, protocol=2))
    with pytest.raises(CheckpointError, match="could run code"):
        open_shard(path)
    assert not mark.exists()


@pytest.mark.parametrize("keep", [0, 100, -20])
def test_truncated_file_is_named(path, keep):
    torch.save({"w": torch.ones(100)}, path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: not a whole torch file"):
        open_shard(path)


@pytest.mark.parametrize("content", [[1, 2], {"w": 3}, {"w": torch.ones(2).to_sparse()}])
def test_what_is_no_plain_tensor_is_refused(path, content):
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"not weights by name|not a tensor|only plain tensors"):
        open_shard(path)


def test_without_torch_the_error_says_what_to_do(path, monkeypatch):
    torch.save({"w": torch.ones(2)}, path)
    real = builtins.__import__

    def without_torch(name, *args, **kwargs):
        if name == "torch":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(CheckpointError, match=r"needs torch.*install.*safetensors"):
        open_shard(path)
