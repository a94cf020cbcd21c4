import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from sbjax.checkpoints import CheckpointError
from sbjax.checkpoints.shards import TensorInfo, open_shard


@pytest.fixture
def tensors():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    return {"f": values, "b": values.astype(ml_dtypes.bfloat16), "h": values.astype(np.float16)}


@pytest.fixture
def path(tmp_path, tensors):
    save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_mixed_dtypes_in_one_file_are_read_as_they_are(path, tensors):
    with open_shard(path) as shard:
        assert shard.tensors == {name: TensorInfo(a.dtype.name, (3, 4)) for name, a in tensors.items()}
        for name, expected in tensors.items():
            found = shard.read(name)
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("index", [(slice(1, 3),), (slice(None), slice(2, 4)), (slice(0, 1), slice(1, None))])
def test_parts_are_read_without_the_rest(path, tensors, index):
    with open_shard(path) as shard:
        for name, whole in tensors.items():
            np.testing.assert_array_equal(shard.read(name, index), whole[index])


DAMAGE = {
    "cut short": lambda raw: raw[:-5],
    "empty": lambda raw: b"",
    "cut in the header": lambda raw: raw[:40],
    "longer than its header says": lambda raw: raw + b"1234",
    "header length too large": lambda raw: (10**15).to_bytes(8, "little") + raw[8:],
    "header length too small": lambda raw: (5).to_bytes(8, "little") + raw[8:],
    "offsets past the end": lambda raw: raw.replace(b"[0,48]", b"[0,99]"),
    "another file altogether": lambda raw: b"<html>not found</html>",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_files_are_named(path, damage):
    raw = path.read_bytes()
    assert damage(raw) != raw
    path.write_bytes(damage(raw))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: not a whole safetensors file"):
        open_shard(path)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"gone\.safetensors: no such file"):
        open_shard(tmp_path / "gone.safetensors")


def test_git_lfs_pointer_is_recognised(path):
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(CheckpointError, match="git lfs pull"):
        open_shard(path)
