"""tools/replay: recorded texts said again by the real engine, and drafts made worse."""

import numpy as np
import pytest
from replay.recorded_models import RECORDED, VOCABULARY
from replay.recording import fingerprint, recording, weakened
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


def chains(arrays, length: int) -> tuple[int, int, int]:
    """Tokens, rounds and accepted tokens of serial rounds with chains of ``length``, counted by hand."""
    tokens = rounds = accepted = 0
    for script, end in zip(arrays["script"], np.minimum(arrays["length"], LENGTH - 1), strict=True):
        place = 0
        while place < end:
            right = 0
            while right < min(length, end - place - 1) and script[place + right] == 0:
                right += 1  # rank 0 is the draft's own pick
            place, rounds, accepted = place + right + 1, rounds + 1, accepted + right
        tokens += int(end)
    return tokens, rounds, accepted


def test_a_policy_says_the_recorded_text_and_is_counted_row_by_row(arrays):
    serial = replay(sbjax.SpS(3), Recording.of(arrays)).figures()
    assert (serial.tokens, serial.rounds, serial.accepted) == chains(arrays, 3)
    assert serial.speed_up(5) == pytest.approx(5 * serial.tokens / (5 * serial.rounds + serial.steps))
    replayed = replay(sbjax.SpecBranch(3, branches=3), Recording.of(arrays))
    found = replayed.figures()
    parts = [replayed.figures(slice(0, 1)), replayed.figures(slice(1, None))]
    assert [sum(getattr(part, name) for part in parts) for name in ("tokens", "rounds", "hits")] == [
        found.tokens, found.rounds, found.hits,
    ]  # fmt: skip
    assert found.tokens == serial.tokens and found.steps == 3 * found.rounds
    for c, round_time in ((5, 5), (2, 3)):
        assert found.speed_up(c) == pytest.approx(c * found.tokens / (round_time * found.rounds))


def test_a_weakened_draft_keeps_its_mass_and_says_the_same_text_less_surely(arrays):
    assert weakened(arrays, 0.0) is arrays
    worse = weakened(arrays, 3.0)
    np.testing.assert_allclose(np.exp(worse["rows"]).sum(-1), np.exp(arrays["rows"]).sum(-1), rtol=1e-4)
    assert (np.diff(worse["rows"], axis=-1) <= 0).all()
    assert worse["script"][0, 5] == VOCABULARY - 1
    assert (worse["script"] == 0).mean() < (arrays["script"] == 0).mean()


def test_a_recording_is_made_once_and_one_of_something_else_is_refused(arrays, tmp_path):
    path = tmp_path / "kept" / "suite.npz"
    wanted = {"temperature": 0.0, "prompts": fingerprint([[1, 2], [3]])}
    made = []
    for _ in range(2):
        found = recording(path, wanted, lambda: made.append(None) or arrays)
        assert found.keys() == arrays.keys()
        np.testing.assert_array_equal(found["rows"], arrays["rows"])
    assert len(made) == 1 and list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match="was recorded with another prompts: give another"):
        recording(path, {**wanted, "prompts": fingerprint([[1], [2, 3]])}, dict)
