import shutil

import pytest

from sbjax.checkpoints import CheckpointError, export


def test_small_checkpoints_are_one_file_without_an_index(converted, tmp_path):
    back = export(converted, tmp_path / "back")
    assert sorted(path.name for path in back.iterdir()) == ["config.json", "model.safetensors"]


def test_files_are_at_most_as_large_as_asked(converted, tmp_path):
    back = export(converted, tmp_path / "back", max_shard_size="1KB")
    files = sorted(back.glob("*.safetensors"))
    assert files[0].name == f"model-00001-of-{len(files):05d}.safetensors"
    assert all(path.stat().st_size < 1000 + 8192 for path in files)


@pytest.mark.parametrize("size", ["much", "0"])
def test_unusable_sizes_are_refused(converted, tmp_path, size):
    with pytest.raises(CheckpointError, match=f"max_shard_size '{size}'"):
        export(converted, tmp_path / "back", max_shard_size=size)


def test_a_hugging_face_folder_is_not_exported(source, tmp_path):
    with pytest.raises(CheckpointError, match=r"not a converted checkpoint, it has no sbjax\.json"):
        export(source, tmp_path / "back")


def test_damaged_checkpoints_are_not_exported(converted, tmp_path):
    copy = shutil.copytree(converted, tmp_path / "copy")
    path = next(path for path in (copy / "params").rglob("d/*"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=f"{path.name}: damaged"):
        export(copy, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_existing_results_are_kept_unless_asked(converted, tmp_path):
    back = export(converted, tmp_path / "back")
    with pytest.raises(CheckpointError, match="exists already"):
        export(converted, back)
    assert export(converted, back, overwrite=True) == back
