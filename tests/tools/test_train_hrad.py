"""The tool that trains H-RAD's predictor, on a tiny pair: recorded, continued, measured, saved."""

import json
import pathlib
import signal

import numpy as np
import pytest
import train_hrad
from hrad_training import examples, job, prompts, recording, training
from hrad_training.records import RecordFile, labels, record_dtype

import sbjax
from sbjax import Engine, SpecBranch, hrad
from sbjax.testing import TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
PROMPTS = ["def add(a, b):", "import json", "class A:", "x = 1", "for i in", "return x", "if a", "while 1"]


def arguments(tiny_pair: pathlib.Path, folder: pathlib.Path, *more: str) -> list[str]:
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in PROMPTS))
    settings = {
        "--target": tiny_pair / "target",
        "--draft": tiny_pair / "draft",
        "--prompt-file": file,
        "--draft-length": 2,
        "--branches": 3,
        "--features": 2,
        "--max-new-tokens": 24,
        "--rows": 3,
        "--epochs": 2,
        "--work": folder / "work",
        "--out": folder / "hrad",
    }
    return [*(str(part) for item in settings.items() for part in item), "--quiet", *more]


def test_an_interrupted_recording_goes_on_and_a_predictor_comes_out(tiny_pair, tmp_path, capsys, monkeypatch):
    record, batches = recording.record, []

    def stop_after_two(*given):
        batches.append(record(*given))
        if len(batches) == 2:
            signal.raise_signal(signal.SIGINT)
        return batches[-1]

    monkeypatch.setattr(recording, "record", stop_after_two)
    assert train_hrad.main(arguments(tiny_pair, tmp_path)) == 130
    assert "batch 2 of 6" in capsys.readouterr().err
    # What a killed process would have left behind the last batch.
    with (tmp_path / "work" / "records.bin").open("ab") as file:
        file.write(b"half a record")
    assert train_hrad.main(arguments(tiny_pair, tmp_path)) == 0
    assert len(batches) == 6  # 8 prompts at 2 temperatures, 3 rows a batch
    report = json.loads(capsys.readouterr().out)
    assert sum(report["classes"].values()) == report["test"] > 0
    assert report["test"] + report["training"] + report["validation"] == sum(map(len, batches))
    for name in ("majority", "confidences", "features", "both"):
        assert 0 <= report[name]["accuracy"] <= 1
    predictor = sbjax.load_predictor(tmp_path / "hrad")
    assert predictor.config == sbjax.PredictorConfig(features=2, width=16, positions=4)
    assert predictor.about["held_out"] == report and predictor.about["line_length"] == 4
    # Settings of the recording may not change in between, those of the training may; what is there stays.
    assert train_hrad.main(arguments(tiny_pair, tmp_path, "--overwrite", "--seed", "1")) == 1
    assert "other settings of prompts, seed" in capsys.readouterr().err
    assert train_hrad.main(arguments(tiny_pair, tmp_path, "--epochs", "1")) == 1
    assert "exists already" in capsys.readouterr().err
    again = arguments(tiny_pair, tmp_path, "--overwrite", "--epochs", "1", "--without-confidences")
    assert train_hrad.main(again) == 0
    assert sbjax.load_predictor(tmp_path / "hrad").config.positions == 0
    assert len(batches) == 6


def test_records_are_the_lines_and_what_became_of_them():
    model = TableModel(6)
    engine = Engine(model, model, SpecBranch(draft_length=3, branches=2, features=1), 6, widths=(6,))
    table = model.init(0, 3.0)
    jobs = [recording.Job(row, [row, 1, 2], row, float(row > 0)) for row in range(3)]
    jobs.append(recording.Job(3, [0], recording.NOT_RECORDED, 0.0))
    same = recording.record(engine, {"target": table, "draft": table}, jobs, 40, 64, seed=1)
    assert set(same["group"]) == {0, 1, 2} and (same["temperature"] == (same["group"] > 0)).all()
    # A draft that is the target: all of every line is accepted.
    assert len(same) > 10 and (same["accepted"] == same["length"] - 1).all()
    sizes = np.square(same["inputs"].astype(np.float32)).mean(-1)
    assert (
        np.isin(sizes.round(2), (0, 1)).all() and sizes.mean() > 0.5
    )  # token 0 at position 0 is a zero state
    other = recording.record(engine, {"target": table, "draft": model.init(1, 3.0)}, jobs, 40, 64, seed=1)
    assert set(labels(other)) >= {hrad.NOTHING, hrad.EVERYTHING}
    assert (other["accepted"] <= other["length"] - 1).all() and (other["length"] >= 2).all()


def learnable(count: int) -> np.ndarray:
    """Records whose label is in the target's states for one half, and in the confidences for the other."""
    rng = np.random.default_rng(0)
    records = np.zeros(count, record_dtype(1, 4, 5))
    label = rng.integers(0, 3, count)
    shown = rng.random(count) < 0.5
    records["group"] = np.arange(count) // 10
    records["length"], records["accepted"] = 5, np.array([0, 2, 4])[label]
    records["inputs"] = rng.normal(size=(count, 2, 4))
    records["inputs"][:, 0, 0] = np.where(shown, label - 1.0, 0) * 3 + 5
    records["confidence"] = np.where(shown, 0.5, np.array([0.05, 0.5, 0.95])[label])[:, None]
    return records


def test_training_learns_what_is_there_to_learn():
    parts = examples.split(learnable(900), seed=0)
    assert sum(map(len, parts.values())) == 900
    config = sbjax.PredictorConfig(1, 4, 5, hidden=(16, 8), line_hidden=(8,))
    course = training.Course(epochs=8, rate=1e-2)
    params, report = job.train_all(parts, config, course)
    assert report["both"]["accuracy"] > 0.9
    assert max(report["confidences"]["accuracy"], report["features"]["accuracy"]) < 0.8
    assert report["majority"]["accuracy"] < 0.5
    assert set(params["both"]) == {"target", "line"} and set(params["confidences"]) == {"line"}
    assert np.sum(report["both"]["confusion"]) == len(parts["test"]) == report["test"]


def test_no_prompt_is_both_trained_on_and_measured():
    records = learnable(100)
    records["confidence"] = records["group"][:, None]
    parts = examples.split(records, seed=3)
    groups = [set(part.confidence[:, 0].tolist()) for part in parts.values()]
    assert len(set.union(*groups)) == sum(map(len, groups)) == 10
    with pytest.raises(ValueError, match="at least 3"):
        examples.split(records[:20], seed=0)


def test_record_file_drops_what_was_cut_short(tmp_path):
    dtype, records = record_dtype(1, 2, 3), np.zeros(5, record_dtype(1, 2, 3))
    records["accepted"] = np.arange(5)
    file = RecordFile(tmp_path, {"seed": 0}, dtype)
    file.append(records[:3])
    with (tmp_path / "done.jsonl").open("a") as done:
        done.write('{"batch": 1')
    with (tmp_path / "records.bin").open("ab") as content:
        content.write(records[:1].tobytes())
    file = RecordFile(tmp_path, {"seed": 0}, dtype)
    assert file.batches == 1
    file.append(records[3:])
    np.testing.assert_array_equal(RecordFile(tmp_path, {"seed": 0}, dtype).read(), records)
    with pytest.raises(ValueError, match="other settings of seed"):
        RecordFile(tmp_path, {"seed": 1}, dtype)


def test_slices_of_sources_are_grouped_by_file(tmp_path, tiny_pair):
    for i in range(80):
        (tmp_path / f"module_{i}.py").write_text(f"value_{i} = {i}\n" * 30)
    tokenizer = sbjax.load(tiny_pair / "target").tokenizer
    found = prompts.from_sources(tmp_path, tokenizer, longest=16, count=12, seed=0)
    assert len(found.ids) == len(found.groups) == 12 and {len(ids) for ids in found.ids} == {16}
    texts = {group: {tokenizer.decode(ids)[-1] for ids in found.ids} for group in found.groups}
    assert len(texts) > 1
    with pytest.raises(ValueError, match="--prompt-tokens"):
        prompts.from_sources(tmp_path, tokenizer, longest=100_000, count=12, seed=0)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--features", "3"), "reads more layers than the 2"),
        (("--prompt-tokens", "1"), "none of the 8 prompts"),
        (("--max-new-tokens", "1000"), "context is 160"),
        (("--rate", "0"), "must be positive"),
        (("--draft", "nowhere"), "no such folder"),
        (("--draft-length", "1"), "no lines to decide"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_recorded(tiny_pair, tmp_path, capsys, more, message):
    assert train_hrad.main(arguments(tiny_pair, tmp_path, *more)) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "work").exists()


def test_wrong_usage_is_refused(tmp_path, capsys):
    two_ways = ["--source", "x", "--prompt-file", "y"]
    for more, message in ((["--chat"], "only go with --prompt-file"), (two_ways, "choose one")):
        with pytest.raises(SystemExit):
            train_hrad.main(["--out", str(tmp_path / "hrad"), *more])
        assert message in capsys.readouterr().err
