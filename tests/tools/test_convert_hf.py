import json
import pathlib
import subprocess
import sys

import convert_hf
import numpy as np
import pytest
from safetensors.numpy import load_file

from sbjax import checkpoints

SCRIPT = pathlib.Path(convert_hf.__file__)


def test_both_ways(tiny_pair, tmp_path, capsys):
    source, out, back = tiny_pair / "draft", tmp_path / "out", tmp_path / "back"
    assert convert_hf.main([str(source), str(out), "--dtype", "float32"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{out}\n"
    assert "Converting to out" in shown.err
    assert convert_hf.main([str(out), str(back), "--to-hf", "--max-shard-size", "4KB", "--quiet"]) == 0
    assert capsys.readouterr() == (f"{back}\n", "")
    index = json.loads((back / "model.safetensors.index.json").read_text())["weight_map"]
    original = load_file(source / "model.safetensors")
    assert set(index) == set(original)
    for name, array in original.items():
        found = load_file(back / index[name])[name]
        assert (found.dtype, found.tobytes()) == (array.dtype, array.tobytes())


def test_dtype_is_obeyed(tiny_pair, tmp_path):
    out = tmp_path / "out"
    assert convert_hf.main([str(tiny_pair / "draft"), str(out), "--dtype", "bfloat16", "--quiet"]) == 0
    record = json.loads((out / "sbjax.json").read_text())
    assert set(record["stored_dtypes"].values()) == {"bfloat16"}


def test_existing_results_are_kept_unless_asked(tiny_pair, tmp_path, capsys):
    command = [str(tiny_pair / "draft"), str(tmp_path / "out"), "--quiet"]
    assert convert_hf.main(command) == 0
    assert convert_hf.main(command) == 1
    assert "exists already" in capsys.readouterr().err
    assert convert_hf.main([*command, "--overwrite"]) == 0


def test_expected_failures_are_one_line_and_exit_code_1(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    command = [sys.executable, str(SCRIPT), str(tmp_path), str(tmp_path.parent / "out")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.startswith("convert_hf: ") and run.stderr.count("\n") == 1
    assert "mamba" in run.stderr


def test_not_a_folder(tmp_path, capsys):
    assert convert_hf.main([str(tmp_path / "none"), str(tmp_path / "out")]) == 1
    assert "is no folder here" in capsys.readouterr().err


def test_interrupt_is_one_line_and_exit_code_130(tiny_pair, tmp_path, capsys, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoints, "convert", interrupt)
    assert convert_hf.main([str(tiny_pair / "draft"), str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "convert_hf: interrupted, nothing was written\n"


@pytest.mark.parametrize(
    "options, message",
    [
        (["--to-hf", "--dtype", "float32"], "do not go with --to-hf"),
        (["--to-hf", "--revision", "main"], "do not go with --to-hf"),
        (["--max-shard-size", "1GB"], "only goes with --to-hf"),
        (["--dtype", "int8"], "invalid choice"),
    ],
)
def test_wrong_usage_is_exit_code_2(options, message, capsys):
    with pytest.raises(SystemExit) as exit:
        convert_hf.main(["source", "out", *options])
    assert exit.value.code == 2
    assert message in capsys.readouterr().err


def test_help_names_every_option_and_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as exit:
        convert_hf.main(["--help"])
    assert exit.value.code == 0
    shown = capsys.readouterr().out
    for word in (
        "--to-hf",
        "--dtype",
        "--revision",
        "--max-shard-size",
        "--overwrite",
        "--quiet",
        "Exit codes",
    ):
        assert word in shown
    assert np.all([len(line) < 100 for line in shown.splitlines()])
