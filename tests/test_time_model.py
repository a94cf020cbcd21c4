"""Modelled times of counted runs against sums made by hand."""

import json

import jax.numpy as jnp
import pytest

from sbjax import (
    PEARL,
    AdaEDL,
    Autoregressive,
    PromptLookup,
    Roofline,
    RunTime,
    SpecBranch,
    SpS,
    Statistics,
    StepTimes,
    run_time,
    speed_up,
    summary,
)

TIMES = StepTimes.from_tables({1: 10, 5: 14, 9: 20}, {1: 2, 2: 3, 4: 4})


def counted(widths, *rounds) -> Statistics:
    """Rounds given as (alive, emitted, draft forwards, index of the width); nothing was drafted."""
    statistics = Statistics.create(len(rounds[0][0]), 4, widths)
    for alive, emitted, forwards, width in rounds:
        nothing = jnp.zeros(len(alive), jnp.int32)
        statistics = statistics.count(
            jnp.array(alive, bool),
            nothing,
            nothing,
            jnp.array(emitted, jnp.int32),
            jnp.int32(forwards),
            width,
        )
    return statistics.host()


ONE_ROW = counted((1, 5), ([1], [3], 4, 1), ([1], [1], 4, 0), ([1], [5], 4, 1))


def test_with_overlap_two_devices_wait_for_the_slower_and_one_does_both():
    # A round drafts 4 steps of 4 branches, 16: slower than a target forward of 14 or of 10.
    found = run_time(ONE_ROW, SpecBranch(draft_length=4, branches=4), TIMES)
    assert found == RunTime(plain=9 * 10, two_devices=3 * 16, one_device=14 + 10 + 14 + 3 * 16)
    # One branch takes 8: the target is the slower one, by the width of each round.
    found = run_time(ONE_ROW, PEARL(draft_length=4), TIMES)
    assert found == RunTime(plain=90, two_devices=38, one_device=38 + 24)
    assert speed_up(ONE_ROW, PEARL(draft_length=4), TIMES) == 90 / 38
    assert speed_up(ONE_ROW, PEARL(draft_length=4), TIMES, devices=1) == 90 / 62


@pytest.mark.parametrize("method", [SpS(draft_length=4), AdaEDL(draft_length=4)])
def test_serial_devices_wait_for_each_other(method):
    run = counted((1, 5), ([1], [3], 4, 1), ([1], [5], 4, 1), ([1], [1], 0, 0))
    # Of the four forwards of a chain, the first reads two tokens; the last round had none.
    assert run_time(run, method, TIMES) == RunTime(
        plain=90, two_devices=38 + 2 * (3 + 3 * 2), one_device=38 + 2 * (3 + 3 * 2)
    )


def test_plain_decoding_is_as_fast_as_itself():
    run = counted((1,), *[([1, 1], [1, 1], 0, 0)] * 4, ([1, 0], [1, 0], 0, 0))
    assert speed_up(run, Autoregressive(), TIMES) == 1
    assert run_time(run, Autoregressive(), TIMES, overhead=0.5).plain == 5 * 10.5


def test_methods_without_a_draft_need_no_draft_times():
    run = counted((1, 5), ([1], [2], 0, 1), ([1], [1], 0, 0))
    times = StepTimes(TIMES.target, draft=None)
    assert run_time(run, PromptLookup(), times) == RunTime(plain=30, two_devices=24, one_device=24)


def test_overhead_is_paid_every_round_by_every_side():
    without, with_it = (run_time(ONE_ROW, PEARL(draft_length=4), TIMES, overhead=h) for h in (0, 0.5))
    assert with_it == without + RunTime(9 * 0.5, 3 * 0.5, 3 * 0.5)


def test_only_the_ratio():
    times = StepTimes.from_ratio(8)
    assert [times.target(1), times.target(99), times.draft(1), times.draft(64)] == [8, 8, 1, 1]
    # Three rounds for nine tokens, the target the slower: three times as fast.
    assert speed_up(ONE_ROW, SpecBranch(draft_length=4, branches=64), times) == 3
    assert speed_up(ONE_ROW, SpecBranch(draft_length=4), times, devices=1) == 9 * 8 / (3 * (8 + 4))


def test_a_summary_of_one_row_will_do_also_after_json():
    for method in (SpS(draft_length=4), PEARL(draft_length=4)):
        figures = json.loads(json.dumps(summary(ONE_ROW)))
        assert run_time(figures, method, TIMES) == run_time(ONE_ROW, method, TIMES)


def test_a_batch_is_as_long_as_its_longest_row():
    batch = counted((1, 5), ([1, 1], [2, 5], 4, 1), ([1, 0], [1, 0], 4, 0))
    method = PEARL(draft_length=4)
    assert run_time(batch, method, TIMES).plain == 5 * 10
    with pytest.raises(ValueError, match=r"pass sbjax\.Statistics of single runs, or plain_forwards"):
        run_time(summary(batch), method, TIMES)
    assert run_time(summary(batch), method, TIMES, plain_forwards=5) == run_time(batch, method, TIMES)
    with pytest.raises(ValueError, match="counted for the whole batch only"):
        run_time({"rounds": 2, "tokens": 3}, method, TIMES)


def test_several_runs_are_weighed_by_their_times():
    short = counted((1, 5), ([1], [1], 4, 0))
    method = PEARL(draft_length=4)
    assert speed_up([ONE_ROW, short], method, TIMES) == (90 + 10) / (38 + 10)
    with pytest.raises(ValueError, match="no rounds"):
        speed_up([], method, TIMES)
    with pytest.raises(ValueError, match="devices must be 1 or 2, got 3"):
        speed_up(short, method, TIMES, devices=3)


def test_tables_are_straight_between_widths_and_end_where_the_measurement_ended():
    assert [TIMES.target(width) for width in (1, 3, 5, 7, 9)] == [10, 12, 14, 17, 20]
    assert TIMES.draft(3) == 3.5
    with pytest.raises(ValueError, match="target forwards by tokens were measured for 1 to 9, not for 10"):
        TIMES.target(10)
    with pytest.raises(ValueError, match="draft steps by branches were measured for 1 to 4, not for 8"):
        run_time(ONE_ROW, SpecBranch(draft_length=4, branches=8), TIMES)


@pytest.mark.parametrize(
    ("target", "message"),
    [({}, "rising widths"), ({0: 1.0}, "rising widths"), ({1: 0.0}, "must be positive")],
)
def test_tables_that_mean_nothing_are_refused(target, message):
    with pytest.raises(ValueError, match=message):
        StepTimes.from_tables(target, {1: 1.0})


def test_a_roofline_is_flat_while_weights_are_the_longer_part():
    times = Roofline(weight_bytes=14e9, flops=14e9, bandwidth=1e12, peak=100e12)
    assert times(1) == times(100) == 14e-3 and times(200) == pytest.approx(28e-3)
    rows = Roofline(weight_bytes=14e9, flops=14e9, bandwidth=1e12, peak=100e12, rows=50)
    assert rows(4) == pytest.approx(28e-3)
    assert run_time(ONE_ROW, PEARL(4), StepTimes(times, times)).two_devices == pytest.approx(3 * 4 * 14e-3)
    with pytest.raises(ValueError, match="peak must be positive, got 0"):
        Roofline(1, 1, 1, 0)
    with pytest.raises(ValueError, match="c must be positive, got -1"):
        StepTimes.from_ratio(-1)


def test_a_file_has_to_be_one_of_step_times_and_complete(tmp_path):
    path = tmp_path / "steps.json"
    content = {"target_seconds": {"1": 10, "9": 20}, "draft_seconds": {"1": 2, "4": 4}, "complete": True}
    path.write_text(json.dumps(content))
    times = StepTimes.from_file(path)
    assert (times.target(5), times.draft(4)) == (15, 4)
    path.write_text(json.dumps({**content, "complete": False}))
    with pytest.raises(ValueError, match=r"steps\.json was cut short"):
        StepTimes.from_file(path)
    path.write_text(json.dumps({"benchmark": "floor"}))
    with pytest.raises(ValueError, match=r"steps\.json has no step times"):
        StepTimes.from_file(path)
