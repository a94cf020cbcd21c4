import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

from sbjax.checkpoints import CheckpointError, convert, export, load, orbax
from sbjax.checkpoints.atomic_folder import atomic_folder


def test_folder_appears_at_the_end(tmp_path):
    out = tmp_path / "new" / "out"
    with atomic_folder(out, overwrite=False, needed=0) as work:
        (work / "config.json").write_text("{}")
        assert not out.exists()
    assert [path.name for path in out.iterdir()] == ["config.json"]
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupted_runs_leave_nothing(tmp_path, error):
    with pytest.raises(error), atomic_folder(tmp_path / "out", overwrite=False, needed=0) as work:
        (work / "config.json").write_text("{}")
        raise error
    assert not list(tmp_path.iterdir())


def test_two_processes_do_not_write_one_folder(tmp_path):
    with atomic_folder(tmp_path / "out", overwrite=False, needed=0):
        with pytest.raises(CheckpointError, match="another process is writing it"):
            with atomic_folder(tmp_path / "out", overwrite=False, needed=0):
                pass


def test_existing_results_are_kept_unless_asked(source, tmp_path):
    out = convert(source, tmp_path / "out")
    before = (out / "sbjax.json").read_bytes()
    with pytest.raises(CheckpointError, match="exists already"):
        convert(source, out, dtype="float32")
    assert (out / "sbjax.json").read_bytes() == before
    assert set(convert(source, out, dtype="float32", overwrite=True).iterdir()) == set(out.iterdir())
    assert (out / "sbjax.json").read_bytes() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_what_is_no_checkpoint_is_never_overwritten(source, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"not a checkpoint .*not overwritten"):
        convert(source, tmp_path / "photos", overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").exists()


def test_failed_overwrite_keeps_the_old_result(source, tmp_path, monkeypatch):
    out = convert(source, tmp_path / "out")

    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(orbax, "write", fail)
    with pytest.raises(RuntimeError):
        convert(source, out, overwrite=True)
    assert load(out).params


# How a full disk is reported by Python, and by TensorStore.
FULL = {
    "os": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "tensorstore": ValueError("RESOURCE_EXHAUSTED: Error writing local file: No space left on device"),
    "safetensors": RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
}


@pytest.mark.parametrize("error", FULL.values(), ids=FULL.keys())
def test_full_disk_while_parameters_are_written(source, tmp_path, monkeypatch, error):
    def fail(path, leaves, stream):
        next(stream)
        path.mkdir()
        raise error

    monkeypatch.setattr(orbax, "write", fail)
    with pytest.raises(CheckpointError, match=r"out: the disk is full, nothing was written.*free some space"):
        convert(source, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_full_disk_is_noticed_before_the_start(source, converted, tmp_path, monkeypatch):
    usage = shutil._ntuple_diskusage(100, 100, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(CheckpointError, match="the disk is full"):
        convert(source, tmp_path / "out")
    with pytest.raises(CheckpointError, match="the disk is full"):
        export(converted, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_full_disk_while_exporting(converted, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise FULL["safetensors"]

    monkeypatch.setattr("sbjax.checkpoints.exporting.save_file", fail)
    with pytest.raises(CheckpointError, match="the disk is full"):
        export(converted, tmp_path / "out")
    assert not list(tmp_path.iterdir())


KILLED = """
import sys, time
from sbjax.checkpoints import convert, orbax

def write(path, leaves, stream):
    next(stream)
    path.mkdir()
    (path / "data").write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)

orbax.write = write
convert(*sys.argv[1:])
"""


def test_killed_run_leaves_nothing_that_looks_finished_and_a_second_completes_it(source, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(source), str(out)]
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    assert not out.exists()
    partial = tmp_path / "out.partial"
    with pytest.raises(CheckpointError, match="an interrupted conversion; run the conversion again"):
        load(partial)
    assert load(convert(source, out)).params
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]
