"""Draft length "auto": the choice from given times, and that models are measured once and then decode."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import (
    PEARL,
    AdaEDL,
    Autoregressive,
    Model,
    SpecBranch,
    SpS,
    draft_length,
    generate,
    resolve_draft_length,
)
from sbjax.draft_length import fitting_length
from sbjax.step_timing import draft_timer, target_timer
from sbjax.testing import TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
MODEL = TableModel(9, max_length=64)
PARAMS = MODEL.init(0)
PAIR = (MODEL, PARAMS, MODEL, PARAMS)


@pytest.fixture
def times(monkeypatch):
    """Timers that say the given seconds; which models were asked about is noted in ``asked``."""

    def set_times(target, draft):
        def timer(name, seconds):
            def make(model, params, width, *, rows, slots):
                set_times.asked.append((name, width, rows))
                return lambda: next(seconds)

            return make

        monkeypatch.setattr(draft_length, "target_timer", timer("target", iter(target)))
        monkeypatch.setattr(draft_length, "draft_timer", timer("draft", iter(draft)))

    set_times.asked = []
    monkeypatch.setattr(draft_length, "_measured", {})
    return set_times


@pytest.mark.parametrize("method", [PEARL("auto"), SpecBranch("auto", branches=8)])
@pytest.mark.parametrize(
    ("target", "draft", "fits"), [(10, 1, 10), (7, 2, 4), (5.4, 1, 5), (1, 3, 1), (99, 1, 16)]
)
def test_with_overlap_draft_and_target_end_a_round_together(method, target, draft, fits):
    assert fitting_length(method, target, draft) == fits


def test_serial_chains_are_as_long_as_pays():
    def rate(length, c, acceptance):
        return (1 - acceptance ** (length + 1)) / (1 - acceptance) / (length + c)

    for c in (0.1, 1, 2.4, 5, 10, 40):
        for method, acceptance in (
            (SpS("auto"), 0.8),
            (AdaEDL("auto"), 0.9),
            (AdaEDL("auto", target_acceptance=0.5), 0.5),
        ):
            chosen = fitting_length(method, c, 1)
            assert all(rate(chosen, c, acceptance) >= rate(other, c, acceptance) for other in range(1, 17))
    assert fitting_length(SpS("auto"), 10, 1) == 6
    assert fitting_length(AdaEDL("auto", target_acceptance=1), 10, 1) == 16


def test_the_median_of_turns_decides_and_the_rest_of_the_method_stays(times):
    times([6, 60, 7], [1, 1, 50])
    method = SpecBranch("auto", branches=3, hedge="point", epsilon=0.25)
    assert resolve_draft_length(method, *PAIR, rows=2) == dataclasses.replace(method, draft_length=7)
    assert times.asked == [("target", 8, 2), ("draft", 3, 2)]


def test_models_are_measured_once_for_what_their_times_depend_on(times):
    times([6] * 99, [1] * 99)
    for method in (PEARL("auto"), PEARL("auto"), SpS("auto"), SpecBranch("auto", branches=1)):
        resolve_draft_length(method, *PAIR)
    assert len(times.asked) == 2
    resolve_draft_length(SpecBranch("auto", branches=2), *PAIR)
    resolve_draft_length(PEARL("auto"), *PAIR, rows=3)
    elsewhere = jax.device_put(PARAMS, jax.devices()[1])
    resolve_draft_length(PEARL("auto"), MODEL, PARAMS, MODEL, elsewhere)
    assert len(times.asked) == 8


def test_a_number_is_left_alone_and_a_draft_is_needed(times):
    times([], [])
    for method in (Autoregressive(), SpS(3), PEARL(2)):
        assert resolve_draft_length(method, MODEL, PARAMS, None, None) is method
    assert times.asked == []
    with pytest.raises(ValueError, match='PEARL with draft_length "auto" needs a draft model'):
        resolve_draft_length(PEARL("auto"), MODEL, PARAMS, None, None)


def test_real_timers_measure_and_the_text_is_greedy(monkeypatch):
    monkeypatch.setattr(draft_length, "_measured", {})
    model = Model(MODEL, PARAMS)
    found = generate(model, [[1, 2]], draft=model, method=PEARL("auto"), max_new_tokens=12)
    ((target, draft),) = draft_length._measured.values()
    assert target > 0 and draft > 0
    length = fitting_length(PEARL("auto"), target, draft)
    assert found.statistics["draft_forwards"] == length * found.statistics["target_forwards"]
    table, text = np.asarray(PARAMS["table"]), [1, 2]
    for _ in range(12):
        text.append(int(table[text[-2], text[-1]].argmax()))
    assert found.generations[0].tokens == text[2:]


def test_timed_draft_steps_run_the_model_whole():
    """A product that takes far longer than all the rest is not optimised away, though no text comes of it."""
    shapes, wide = [], np.eye(900, dtype=np.float32)

    class Slow(TableModel):
        def forward(self, params, tokens, positions, cache, mask=None, *, features=0):
            shapes.append(tokens.shape)
            return super().forward(params, tokens, positions, cache, mask, features=features)

        def logits(self, params, hidden):
            row = jnp.tile(hidden[..., :1] * 0 + 1, 900)
            for _ in range(10):
                row = row @ wide
            return super().logits(params, hidden) + 0 * row[..., :9]

    quick, slow = (draft_timer(model(9, max_length=32), PARAMS, 5, rows=2) for model in (TableModel, Slow))
    assert min(slow() for _ in range(3)) > 2 * min(quick() for _ in range(3))
    assert set(shapes) == {(2, 1)}


def test_a_cache_without_room_is_refused():
    with pytest.raises(ValueError, match="64 slots, half of them filled, have no room for 40 tokens"):
        target_timer(MODEL, PARAMS, 40)
