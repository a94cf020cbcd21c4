"""tools/benchmark.py on tiny models: what is measured is what is meant, and nothing is lost."""

import argparse
import json
import math
import pathlib
import re
import statistics

import benchmark
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks import against_transformers, first_token, near_ties, products, sampling_cost, sbjax_side
from benchmarks import transformers_side as other_side
from benchmarks.decoding import Decoder, add_statistics
from benchmarks.results import Results
from benchmarks.suites import read_suite
from benchmarks.worker import Worker
from command_line.timing import turns

import sbjax
from sbjax import step_timing
from sbjax.loops import two_meshes
from sbjax.methods import PEARL

pytestmark = pytest.mark.usefixtures("quick_compile")


@pytest.fixture(scope="module")
def target(tiny_pair):
    return sbjax.load(tiny_pair / "target")


@pytest.fixture
def call(tiny_pair, tmp_path, capsys):
    """Runs a benchmark with the tiny pair: exit code, stdout, stderr, the JSON file."""
    (tmp_path / "suite.jsonl").write_text("".join(f'{{"prompt": "def f{i}(x):"}}\n' for i in range(6)))

    def run(name: str, *arguments: str, draft=True):
        out = tmp_path / "results" / f"{name}.json"
        models = ["--target", f"{tiny_pair}/target"] + (["--draft", f"{tiny_pair}/draft"] if draft else [])
        models = [] if name in ("sampling-cost", "kernels") else models
        code = benchmark.main([name, *models, "--out", str(out), *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err, json.loads(out.read_text())

    run.suite = str(tmp_path / "suite.jsonl")
    return run


class LocalWorker:
    """Stands in for ``Worker``: the same handler, in this process."""

    def __init__(self, side, target, draft, environment=None):
        options = argparse.Namespace(target=str(target), draft=draft and str(draft))
        self._handle = {"sbjax": sbjax_side, "transformers": other_side}[side].load(options)
        self.ready = {"load_seconds": 1.0}

    def ask(self, **command):
        return json.loads(json.dumps(self._handle(json.loads(json.dumps(command)))))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_floor_compares_whole_steps_with_every_matrix_once(call, target):
    code, out, _, found = call("floor", "--steps", "2", "--turns", "2", "--prompt-length", "4", draft=False)
    assert code == 0 and found["complete"] and "matrix products alone" in out
    assert found["matrices"] == 2 * 7 + 1
    times = found["milliseconds_a_step"]
    assert {name: len(each) for name, each in times.items()} == {"plain": 2, "products": 2}
    median = {name: statistics.median(each) for name, each in times.items()}
    assert math.isclose(found["ratio_of_medians"], median["plain"] / median["products"])


def test_the_floor_depends_on_every_matrix(target):
    config, x = target.model.config, jnp.ones((1, 16))
    run = lambda params: products.run_products(config, params, x, jnp.int32(3))  # noqa: E731
    before = run(target.params)
    assert np.all(np.isfinite(before))
    for name in products.matrices(config):
        *parents, leaf = name.removeprefix("model.").split(".")
        changed = jax.tree.map(lambda array: array, target.params)
        node = changed
        for key in parents:
            node = node[key]
        # The last of the products may only move the largest logit, so all of it is changed.
        node[leaf] = node[leaf] * 1.5
        assert not np.array_equal(before, run(changed)), name


def test_sampling_cost_covers_all_settings(call, monkeypatch):
    monkeypatch.setattr(sampling_cost, "_SECONDS_A_TURN", 1e-3)
    arguments = ("--vocab-size", "32", "--turns", "1", "--draft-length", "2")
    code, _, _, found = call("sampling-cost", *arguments)
    cases = {(case["draft_length"], case["setting"]) for case in found["cases"]}
    assert code == 0 and cases == {(g, name) for g in (0, 2) for name in sampling_cost.SETTINGS}
    assert all(case["microseconds_a_round"] > 0 for case in found["cases"])


def test_kernels_times_every_operation_at_every_shape(call):
    arguments = ("--slots", "128", "256", "--rows", "1", "3", "--tokens", "2", "--vocab-size", "64")
    quick = ("--calls", "2", "--turns", "3", "--dtype", "float32", "--bandwidth", "10")
    code, printed, _, found = call("kernels", *arguments, *quick, "--shape", "qwen2.5-coder-1.5b")
    assert code == 0 and len(found["cases"]) == 2 * 2 * 2 + 2
    assert found["cases"][0]["bytes"] == 2 * 4 * 1 * 2 * 128 * (128 + 2)
    for case in found["cases"]:
        assert [len(taken) for taken in case["turns"].values()] == [3]
        assert case["milliseconds"]["reference"] > 0 and case["largest_difference"]["reference"] == 0
    assert "attention, 3 x 256 slots" in printed


def test_methods_tunes_and_reports_on_different_prompts(call):
    arguments = ("--prompts", call.suite, "--tune", "2", "--report", "2", "--max-new-tokens", "8")
    code, out, _, found = call("methods", *arguments, "--draft-length", "2", "--temperature", "0", "1")
    assert code == 0 and "2 of 2" in out
    for case in found["cases"]:
        assert case["differences"] == [] and case["draft_length"] == 2
        assert set(case["tuning"]) == {"plain", "draft alone", "SpS(2)"}
        assert len(case["SpS"]["acceptance_by_position"]) == 2
        assert case["SpS"]["tokens"] == case["plain"]["tokens"]
    assert call("methods", *arguments, "--batch", "4")[:3:2] == (
        1,
        "benchmark: --tune 2 prompts are no whole batches of 4\n",
    )


def test_every_method_with_the_models_apart(call):
    arguments = ("--prompts", call.suite, "--report", "1", "--max-new-tokens", "8", "--temperature", "0")
    reads = two_meshes.host_read.count
    code, out, err, found = call("every-method", *arguments, "--apart", "--methods", "PEARL")
    assert code == 0 and "1 of 1" in out, err
    assert two_meshes.host_read.count > reads
    rows = found["cases"][0]["methods"]
    assert rows["PEARL"]["tokens"] == rows["plain"]["tokens"] and rows["PEARL"]["differences"] == []
    times = sbjax.StepTimes.from_tables(found["target_seconds"], found["draft_seconds"])
    modelled = sbjax.run_time(rows["PEARL"], PEARL(4), times, plain_forwards=8)
    assert math.isclose(rows["PEARL"]["modelled_seconds"], modelled.two_devices)
    code, _, err, _ = call("every-method", *arguments, "--apart", "--methods", "SpS")
    assert code == 1 and "there is no method 'SpS' with the models apart" in err


def test_a_suite_is_split_into_disjoint_prompts(call, target):
    options = argparse.Namespace(field=None, chat=False, tune=2, report=4, max_prompt_tokens=60)
    path = pathlib.Path(call.suite)
    suite = read_suite(path, target.tokenizer, options)
    assert len({tuple(ids) for ids in suite.tuning + suite.reported}) == 6
    assert read_suite(path, target.tokenizer, options) == suite
    options.report = 5
    with pytest.raises(ValueError, match="has 6 prompts of at most 60 tokens, 7 are needed"):
        read_suite(path, target.tokenizer, options)


def test_a_difference_is_explained_by_the_scores(target):
    prompt, plain = [5, 6, 7], Decoder(target, None, sbjax.Autoregressive()).run([[5, 6, 7]], 8).tokens[0]
    settings = {"temperature": 0.0, "seed": 0, "row_id": 0, "slots": 128}
    assert near_ties.explain(target, prompt, plain, plain, **settings) is None
    other = [*plain[:3], (plain[3] + 1) % 280, *plain[4:]]
    found = near_ties.explain(target, prompt, plain, other, **settings)
    assert (found["index"], found["plain"]) == (3, plain[3]) and found["gap"] > 0
    shorter = near_ties.explain(target, prompt, plain, plain[:2], **settings)
    assert shorter == {"index": 2, "plain": plain[2], "other": None}


def test_the_gap_under_sampling_is_that_of_the_scores_with_noise(target):
    run = Decoder(target, None, sbjax.Autoregressive()).run(
        [[5, 6, 7]], 8, temperature=1.0, seed=4, row_ids=[9]
    )
    for wrong in range(0, 280, 40):
        other = [*run.tokens[0][:2], wrong, *run.tokens[0][3:]]
        if wrong != run.tokens[0][2]:
            settings = {"temperature": 1.0, "seed": 4, "row_id": 9, "slots": 128}
            assert near_ties.explain(target, [5, 6, 7], run.tokens[0], other, **settings)["gap"] > 0


def test_statistics_of_runs_add_up(target):
    decoder = Decoder(target, None, sbjax.Autoregressive())
    runs = [decoder.run([[5, 6, 7]], count).statistics for count in (3, 8)]
    total = sbjax.summary(add_statistics(runs))
    assert (total["tokens"], total["rounds"], total["target_forwards"]) == (11, 11, 11)


def test_widths_of_runs_are_not_mixed_up():
    many = sbjax.Statistics.create(3, 2, (1, 4)).host()
    many = many.replace(rounds=np.array([1, 2, 3], np.int32), target_forwards=np.array([2, 1], np.int32))
    total = sbjax.summary(add_statistics([many, many]))
    assert total["target_forwards_by_width"] == {1: 4, 4: 2} and total["rounds"] == 12


def test_against_transformers_gives_the_same_text(call, monkeypatch):
    monkeypatch.setattr(against_transformers, "Worker", LocalWorker)
    arguments = ("--prompts", call.suite, "--tune", "1", "--report", "2", "--max-new-tokens", "8")
    code, _, err, found = call("transformers", *arguments, "--draft-length", "2", "--threads", "1")
    assert code == 0, err
    assert len(found["reported_sides"]) == 4 and set(found["same_text"].values()) == {"2 of 2"}
    sides = ("transformers plain, 1 thread", "transformers assisted constant 5, 1 thread")
    assert {*sides, "transformers assisted default, 1 thread"} == set(found["tuning"])
    assert all(len(answers) == 2 for answers in found["reported"].values())


def test_first_token_measures_fresh_and_warm(call, monkeypatch):
    monkeypatch.setattr(first_token, "Worker", LocalWorker)
    arguments = ("--prompt", "x = 1", "--max-new-tokens", "8", "--draft-length", "2", "--repeats", "1")
    code, out, err, found = call("first-token", *arguments)
    assert code == 0, err
    assert {name: sorted(states) for name, states in found["median_seconds"].items()} == {
        name: ["cached", "cold", "warm"] for name in ("plain", "SpS(2)")
    }
    assert re.search(r"plain, cold .* 1\.000", out)


def test_a_worker_is_a_process_that_answers(tiny_pair, capfd):
    command = {"prompt": [5, 6], "max_new_tokens": 3, "stop_ids": [], "slots": 128, "draft_length": 0}
    environment = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    with Worker("sbjax", tiny_pair / "target", None, environment) as worker:
        answer = worker.ask(**command)
        assert worker.ready["load_seconds"] > 0 and len(answer["tokens"]) == 3
        with pytest.raises(ValueError, match="the sbjax process ended with exit code 1"):
            worker.ask(prompt=[5])
    assert "KeyError" in capfd.readouterr().err


def test_what_was_measured_before_an_interruption_is_on_disk(call, monkeypatch):
    real = Results.put

    def interrupted(self, **entries):
        real(self, **entries)
        raise KeyboardInterrupt

    monkeypatch.setattr(Results, "put", interrupted)
    code, _, err, found = call("floor", "--turns", "2", "--steps", "2", "--prompt-length", "4", draft=False)
    assert code == 130 and "interrupted; what was measured is in" in err
    assert not found["complete"] and len(found["milliseconds_a_step"]["plain"]) == 1
    assert found["options"]["target"] == "target", "folders of this machine do not belong into results"


def test_step_times_are_what_the_time_model_reads(call, tmp_path, monkeypatch):
    monkeypatch.setattr(step_timing, "_SECONDS_A_CALL", 1e-3)
    arguments = ("--widths", "3", "1", "--branches", "1", "--turns", "2", "--slots", "32")
    code, out, err, found = call("step-times", *arguments, "--rows", "2")
    assert code == 0, err
    assert "target forward, 3 tokens" in out and f"c = {found['c']:.2f}" in out
    assert found["target_seconds"].keys() == {"1", "3"} and found["draft_seconds"].keys() == {"1"}
    assert found["target_seconds"]["3"] == statistics.median(found["turns"]["target"]["3"]) > 0
    times = sbjax.StepTimes.from_file(tmp_path / "results" / "step-times.json")
    assert times.target(3) == found["target_seconds"]["3"] and times.draft(1) > 0
    assert math.isclose(found["c"], times.target(1) / times.draft(1))


def test_errors_are_one_line(call, tmp_path):
    code, _, err, found = call("methods", "--prompts", str(tmp_path / "missing.jsonl"))
    assert code == 1 and err.startswith("benchmark: ") and err.count("\n") == 1 and not found["complete"]


def test_turns_alternate():
    assert list(turns("ab", 3)) == ["a", "b", "b", "a", "a", "b"]
