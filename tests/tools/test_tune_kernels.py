"""tools/tune_kernels.py: it finds the best candidate by model or by time, and loses nothing that it found."""

import dataclasses
import functools
import itertools
import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
import tune_kernels
from kernel_tuning import by_cost, by_time, cost_model, shapes
from kernel_tuning.chips import CHIPS
from kernel_tuning.cost_model import Attention, attention_seconds, verify_seconds
from kernel_tuning.kernels import make_problem
from kernel_tuning.search import Refused, search

from kernels_pallas import tuning
from kernels_pallas.block_table import read_table
from kernels_pallas.branch_attention import mosaic_tpu, reference
from kernels_pallas.verify import mosaic_tpu as tpu_verify

V5E = CHIPS["v5e"]
SIZE = Attention(queries=32, width=128, slots=8192, itemsize=2, heads=64)
SMALL = "n=4,m=2,h=128,v=32768"


@pytest.fixture
def call(tmp_path, capsys, monkeypatch):
    """Runs the tool with a compiler that only counts; exit code, stdout, stderr, the table."""
    monkeypatch.setattr(by_cost, "require_libtpu", lambda: None)
    monkeypatch.setattr(tune_kernels, "WITHOUT_A_CHIP", {})
    compiled = []

    def compile(chip, problem, blocks):
        compiled.append((chip.kind, problem.kernel, *blocks.values()))
        run.hook()
        return 100_000 + 20 * next(iter(blocks.values()))

    monkeypatch.setattr(by_cost, "code_bytes", compile)
    table = tmp_path / "folder" / "table.json"

    def run(*arguments, device=("v5e",)):
        shape = [] if "--shape" in arguments else ["--shape", SMALL]
        code = tune_kernels.main(["--device", *device, *shape, "--table", str(table), *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err, read_table(table) if table.exists() else None

    run.hook, run.compiled, run.table = lambda: None, compiled, table
    return run


def test_every_kernel_shape_and_device_gets_an_entry(call):
    arguments = ("--slots", "1024", "2048", "--tokens", "1", "8", "--branches", "1", "4")
    code, out, err, table = call(*arguments, device=("v5e", "v6e"))
    assert (code, err) == (0, "") and str(call.table) in out
    assert set(table) == {"TPU v5 lite", "TPU v6 lite"}
    entries = table["TPU v6 lite"]["branch_attention/tpu"]
    assert {tuple(key.split()[0::3]) for key in entries} == set(
        itertools.product(["queries=16", "queries=64"], ["s=1024", "s=2048"])
    )
    assert set(table["TPU v5 lite"]["verify/tpu"]) == {"v=32768"}
    for entry in entries.values():
        assert entry["by"] == "cost" and entry["jax"] == jax.__version__
        assert entry["microseconds"] <= entry["default_microseconds"]


def test_the_key_is_the_one_that_the_kernel_looks_up(call, monkeypatch):
    """With as many branches as there are, since those become queries before the kernel sees them."""
    call("--slots", "1024", "--tokens", "3", "--branches", "4", "--kernel", "branch_attention", "verify")
    looked_up = []
    monkeypatch.setattr(tuning, "block_shapes", lambda *key: looked_up.append(key))
    options = tune_kernels.parse(
        ["--device", "v5e", "--shape", SMALL, "--slots", "1024", "--tokens", "3", "--branches", "4"]
    )
    for kernel in ("branch_attention", "verify"):
        problem = make_problem(kernel, "tpu", shapes.calls(options)[0])
        # Without blocks, as everybody calls it.
        bare = (
            functools.partial(mosaic_tpu.attention, scale=1.0) if "attention" in kernel else tpu_verify.picks
        )
        jax.eval_shape(bare, *problem.arguments)
        assert looked_up.pop() == (problem.kernel, problem.shape)
        assert problem.shape in read_table(call.table)["TPU v5 lite"][problem.kernel]


def test_a_dry_run_compiles_and_writes_nothing(call):
    code, out, _, table = call("--dry-run", "--slots", "2048")
    assert code == 0 and table is None and not call.compiled and "s=2048" in out


def test_an_interrupted_run_keeps_what_it_found(call):
    def stop():
        if len({chip for chip, *_ in call.compiled}) == 2:
            raise KeyboardInterrupt

    call.hook = stop
    code, out, err, table = call("--kernel", "verify", device=("v5e", "v6e"))
    assert code == 130 and "what was found is in" in err and "chunk=" in out
    assert list(table) == ["TPU v5 lite"] and list(call.table.parent.iterdir()) == [call.table]


def test_a_measured_entry_is_kept_and_others_are_replaced(call):
    call("--kernel", "verify")
    content = json.loads(call.table.read_text())
    entry = content["TPU v5 lite"]["verify/tpu"]["v=32768"]
    for by, kept in (("cost", False), ("time", True)):
        entry |= {"by": by, "blocks": {"chunk": 512}}
        call.table.write_text(json.dumps(content))
        code, out, _, table = call("--kernel", "verify")
        assert code == 0 and ("it was measured" in out) == kept
        assert (table["TPU v5 lite"]["verify/tpu"]["v=32768"] == entry) == kept


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "v5e", "--by", "time"], "--by time needs the device itself: --device here, not v5e"),
        (["--device", "here", "--by", "cost"], "--by cost is for chips that are named"),
        (["--device", "v4"], "invalid choice: 'v4'"),
        (["--device", "v5e", "--slots", "0"], "must be at least 1"),
        (["--device", "v5e", "--shape", "gpt-5"], "a name of llama-3.1-8b, "),
        (["--device", "v5e", "--shape", "n=4,m=3,h=8,v=9"], "m must divide n"),
        (["--device", "v5e", "--shape", "n=4,m=2,h=8"], "n=..,m=..,h=..,v=.. is expected"),
    ],
)
def test_wrong_usage(arguments, said, capsys):
    shape = [] if "--shape" in arguments else ["--shape", SMALL]
    with pytest.raises(SystemExit) as stopped:
        tune_kernels.main([*arguments, *shape])
    assert stopped.value.code == 2 and said in capsys.readouterr().err


def test_what_cannot_be_done_is_said_in_a_line(call, monkeypatch):
    assert call(device=("here",))[::2] == (1, "tune_kernels: there is no TPU or GPU here, only cpu: "
        "name a chip and search by cost\n")  # fmt: skip
    _, _, err, table = call("--slots", "1000")
    assert "the kernel does not apply: 1000 prefix slots" in err and table is None
    call.table.parent.mkdir()
    call.table.write_text('{"TPU v5": 1}')
    with pytest.raises(ValueError, match="must be an object"):
        call()  # the helper reads the table too
    monkeypatch.undo()
    monkeypatch.setattr(by_cost.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(tune_kernels, "WITHOUT_A_CHIP", {})
    with pytest.raises(ValueError, match=r"pip install 'sbjax\[tpu-aot\]'"):
        by_cost.require_libtpu()


def test_help_does_not_import_jax():
    code = (
        "import sys, tune_kernels\n"
        "try: tune_kernels.main(['--help'])\n"
        "except SystemExit: assert 'jax' not in sys.modules\n"
        "else: raise AssertionError"
    )
    folder = os.path.dirname(tune_kernels.__file__)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=folder, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
def test_facts_of_the_model_of_attention(chip, monkeypatch):
    blocks = [128, 256, 512, 1024, 2048, 4096, 8192]
    for block in blocks:
        times = [attention_seconds(chip, SIZE, block, cycles) for cycles in (0.0, 0.2, 0.5, 5.0)]
        assert times == sorted(times) and times[0] < times[-1]
        # Never faster than the bytes of the text.
        text = sum(cost_model.LENGTHS) / len(cost_model.LENGTHS) * SIZE.slots
        floor = SIZE.heads / chip.cores * text * 2 * SIZE.width * SIZE.itemsize / chip.bandwidth
        assert times[0] > floor
    # Where steps cost nothing, only what is read too much separates blocks, and the smallest are best.
    monkeypatch.setattr(cost_model, "STEP_SECONDS", 0.0)
    free = [attention_seconds(chip, SIZE, block, 0.2) for block in blocks]
    assert free == sorted(free)
    monkeypatch.setattr(cost_model, "STEP_SECONDS", 1e-3)
    dear = [attention_seconds(chip, SIZE, block, 0.2) for block in blocks]
    assert dear == sorted(dear, reverse=True)


def test_facts_of_the_model_of_verify():
    # 74 turns of 2048 columns and none left; 49 of 3072 and 2 left; a longer program costs.
    turns = {chunk: verify_seconds(V5E, 74 * 2048, chunk) for chunk in (512, 2048, 3072)}
    assert turns[512] > turns[2048] > turns[3072]
    step = cost_model.SEARCHES * cost_model.LOOP_CYCLES / V5E.clock
    assert (turns[2048] - turns[3072]) / step == pytest.approx(74 - (49 + 2))
    assert verify_seconds(V5E, 4096, 512, 1000.0) > verify_seconds(V5E, 4096, 512)


def fake_search(times, bound=None, **options):
    """Searches candidates numbered from 0; None is refused. Returns what was found and what was measured."""
    measured = []

    def measure(blocks):
        measured.append(blocks["n"])
        if times[blocks["n"]] is None:
            raise Refused("too large")
        return times[blocks["n"]]

    candidates = [{"n": n} for n in range(len(times))]
    return search(candidates, measure, bound and (lambda blocks: bound[blocks["n"]]), **options), measured


def test_the_search_goes_by_the_bound_and_ends_where_nothing_can_be_better():
    found, measured = fake_search([9.0, 7.0, 5.0, 8.0, 6.0], bound=[1.0, 6.0, 3.0, 8.0, 4.0])
    assert measured == [0, 2, 4] and found.blocks == {"n": 2} and found.left == 2
    assert (found.seconds, found.default_seconds) == (5.0, 9.0)


def test_the_search_loses_patience_but_not_over_refused_ones():
    found, measured = fake_search([5.0, 6.0, None, None, None, 6.0, 4.0], patience=2)
    assert measured == [0, 1, 2, 3, 4, 5] and found.blocks == {"n": 0} and found.left == 1
    assert [blocks["n"] for blocks, _ in found.refused] == [2, 3, 4]
    found, measured = fake_search([5.0, 6.0, 4.0, 6.0, 3.0], patience=2)
    assert len(measured) == 5 and found.blocks == {"n": 4}


def test_the_default_stays_unless_another_is_clearly_better():
    assert fake_search([100.0, 99.0])[0].blocks == {"n": 0}
    assert fake_search([100.0, 97.0])[0].blocks == {"n": 1}
    found, _ = fake_search([None, 7.0])
    assert found.blocks == {"n": 1} and found.default_seconds is None
    with pytest.raises(ValueError, match=r"none of 2 candidates can be used; of \{'n': 0\}: too large"):
        fake_search([None, None])


def tuned(kernel="branch_attention", platform="tpu", slots=2048, rows=1):
    return make_problem(kernel, platform, shapes.Call(shapes.model(SMALL), slots, 2, 1, 8, rows, "bfloat16"))


def test_what_a_program_grows_by_is_what_a_block_takes():
    problem = tuned()
    size = Attention(16, 128, 2048, 2, 2)
    # Half a bundle of 64 bytes a slot; the rest of the program is the same.
    measure = by_cost.meter(V5E, problem, lambda chip, problem, blocks: 10**6 + 32 * blocks["slots"])
    for blocks in problem.candidates:
        assert measure(blocks) == pytest.approx(attention_seconds(V5E, size, blocks["slots"], 0.5))
        assert problem.bound(V5E, blocks) <= measure(blocks)
    assert problem.bound(V5E, {"slots": 512}) < measure({"slots": 512})


def test_programs_that_grow_too_long_are_refused():
    measure = by_cost.meter(V5E, tuned(), lambda chip, problem, blocks: 1000 + blocks["slots"])
    assert measure({"slots": 1024}) > 0
    with pytest.raises(Refused, match=r"2.02 times the default's"):
        measure({"slots": 2048})


@pytest.mark.parametrize(
    ("kernel", "platform", "first"),
    [
        ("branch_attention", "tpu", {"slots": 512}),
        ("branch_attention", "gpu", {"slots": 64, "stages": 2}),
        ("verify", "tpu", {"chunk": 2048}),
    ],
)
def test_the_first_candidate_is_what_the_kernel_does_by_itself(kernel, platform, first):
    problem = tuned(kernel, platform)
    assert problem.candidates[0] == first and len(problem.candidates) > 3
    assert len({tuple(blocks.items()) for blocks in problem.candidates}) == len(problem.candidates)


def test_by_time_the_ratio_to_the_default_counts(monkeypatch):
    clock = iter(range(1, 1000))
    speed = {512: 1.0, 1024: 0.5}

    def seconds(function):
        # The device becomes slower and slower.
        return speed[function()["slots"]] * next(clock), None

    class Ready(dict):
        def block_until_ready(self):
            return self

    monkeypatch.setattr(by_time, "seconds", seconds)
    measure = by_time.meter(tuned(), lambda problem, blocks: lambda: Ready(blocks))
    before = measure({"slots": 512})
    assert measure({"slots": 1024}) / before == pytest.approx(0.5, rel=0.1)


def test_the_timed_program_calls_the_kernel_for_every_repetition():
    problem = tuned(slots=128)
    seen = []

    def run(blocks):
        def kernel(*arguments):
            out = reference.attention(*arguments, scale=0.1)
            jax.debug.callback(lambda end: seen.append(int(end[0, 0])), arguments[4])
            return out

        return kernel

    timed = by_time.repeated(dataclasses.replace(problem, run=run), {"slots": 128})
    assert jnp.isfinite(timed())
    jax.effects_barrier()
    assert len(seen) == by_time.REPETITIONS and len(set(seen)) == len(cost_model.LENGTHS)
