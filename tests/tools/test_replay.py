"""tools/replay: recorded texts said again by the real engine, and drafts made worse."""

import numpy as np
import pytest
from replay.recorded_models import RECORDED, VOCABULARY
from replay.recording import weakened
from replay.replaying import Recording, replay

import sbjax

pytestmark = pytest.mark.usefixtures("quick_compile")
ROWS, LENGTH = 3, 24


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    rows = -np.sort(rng.exponential(3, (ROWS, LENGTH, RECORDED)), -1)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True)) + 0.01
    script = np.where(rng.random((ROWS, LENGTH)) < 0.7, 0, rng.integers(1, 4, (ROWS, LENGTH)))
    script[0, 5] = VOCABULARY - 1  # a token that is not among the recorded ids
    lengths = np.array([LENGTH, LENGTH, 9], np.int32)
    return {"length": lengths, "script": script.astype(np.int32), "rows": rows.astype(np.float32)}


def test_a_policy_says_the_recorded_text_and_is_counted_row_by_row(arrays):
    found = replay(sbjax.SpecBranch(3, branches=3), Recording.of(arrays))
    assert found.tokens == 2 * (LENGTH - 1) + 9 and found.steps == 3 * found.rounds
    assert found.time(5) == 5 * found.rounds and found.time(2) == found.steps
    assert found.speed_up(5) == pytest.approx(found.tokens / found.rounds)
    serial = replay(sbjax.SpS(3), Recording.of(arrays))
    assert serial.time(5) == 5 * serial.rounds + serial.steps and serial.tokens == found.tokens
    # What follows a refused token cannot change what is accepted.
    assert serial.accepted + serial.rounds >= serial.tokens


def test_a_weakened_draft_keeps_its_mass_and_says_the_same_text_less_surely(arrays):
    assert weakened(arrays, 0.0) is arrays
    worse = weakened(arrays, 3.0)
    np.testing.assert_allclose(np.exp(worse["rows"]).sum(-1), np.exp(arrays["rows"]).sum(-1), rtol=1e-4)
    assert (np.diff(worse["rows"], axis=-1) <= 0).all()
    assert worse["script"][0, 5] == VOCABULARY - 1
    assert (worse["script"] == 0).mean() < (arrays["script"] == 0).mean()
