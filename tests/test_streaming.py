"""Text that comes in pieces: what is shown, when, and that together it is the final text."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from sbjax.engine import INVALID, LENGTH, RUNNING, STOP
from sbjax.streaming import Watch
from sbjax.text import StopStrings

BOS, EOS, A, B, C, SPACE, HALF, OTHER_HALF, AB = range(9)


class Run:
    """Grows texts as the compiled loop would, and looks at them after every step."""

    def __init__(self, tokenizer, rows: int = 1, stop=()):
        self.shown = [""] * rows
        self.calls: list[tuple[int, str]] = []
        self.text = np.full((rows, 40), 77, np.int32)
        self.text[:, :2] = A
        self.length, self.status = np.full(rows, 2, np.int32), np.zeros(rows, np.int32)
        self.watch = Watch(tokenizer, StopStrings(stop), self.length, self._show)

    def _show(self, row: int, text: str) -> None:
        assert type(row) is int and text
        self.calls.append((row, text))
        self.shown[row] += text

    def step(self, *blocks: list[int], status=None) -> list[int]:
        """Appends a block to every row; returns the rows' status after the look."""
        self.length = self.length.copy()
        for row, block in enumerate(blocks):
            self.text[row, self.length[row] : self.length[row] + len(block)] = block
            self.length[row] += len(block)
        if status is not None:
            self.status = np.array(status, np.int32)
        self.status = np.asarray(self.watch.look(self.state()))
        return self.status.tolist()

    def state(self):
        arrays = {"text": self.text, "length": self.length, "status": self.status}
        return types.SimpleNamespace(**{name: jnp.array(value) for name, value in arrays.items()})


def test_new_text_is_shown_once_and_never_the_prompt(letters):
    run = Run(letters)
    run.step([C])
    run.step([])
    run.step([AB, SPACE])
    assert run.calls == [(0, "c"), (0, "ab ")]


def test_half_a_character_waits_for_the_other_half(letters):
    run = Run(letters)
    run.step([C, HALF])
    assert run.shown == ["c"]
    run.step([OTHER_HALF, A])
    assert run.calls == [(0, "c"), (0, "\u00e9a")]


@pytest.mark.parametrize("status", [LENGTH, INVALID])
def test_half_a_character_is_shown_as_such_when_the_row_ends(letters, status):
    run = Run(letters)
    run.step([C])
    run.step([HALF], status=[status])
    assert run.shown == ["c\ufffd"]


def test_rows_come_and_end_on_their_own(letters):
    run = Run(letters, rows=3)
    run.step([A, B], [C], [])
    run.step([C, EOS], [], [B], status=[STOP, RUNNING, RUNNING])
    run.step([], [C], [B], status=[STOP, LENGTH, RUNNING])
    assert run.shown == ["abc", "cc", "bb"]
    assert run.calls == [(0, "ab"), (1, "c"), (0, "c"), (2, "b"), (1, "c"), (2, "b")]


def test_the_stop_token_is_not_shown_even_if_it_is_text(letters):
    run = Run(letters, rows=2)
    run.step([A, C], [EOS], status=[STOP, STOP])
    assert run.shown == ["a", ""] and run.calls == [(0, "a")]


def test_a_stop_string_ends_its_row_and_no_part_of_it_is_shown(letters):
    run = Run(letters, rows=2, stop=["bc", " a"])
    assert run.step([A, B], [C, SPACE]) == [RUNNING, RUNNING]
    assert run.shown == ["a", "c"]
    assert run.step([C, A], [C]) == [STOP, RUNNING]
    assert run.shown == ["a", "c c"]
    assert run.watch.streams[0].matched == "bc" and run.watch.streams[0].n_ids == 3
    assert run.step([], [SPACE, AB]) == [STOP, STOP]
    assert run.shown == ["a", "c c"] and run.watch.streams[1].matched == " a"


def test_the_beginning_of_a_stop_string_is_shown_when_the_row_ends_without_it(letters):
    for status in (LENGTH, INVALID):
        run = Run(letters, stop=["bc"])
        run.step([A, B], status=[status])
        assert run.shown == ["ab"]
    run = Run(letters, stop=["bc"])
    run.step([A, B, EOS], status=[STOP])
    assert run.shown == ["ab"]


def test_what_was_held_back_is_shown_even_if_the_row_ends_without_another_token(letters):
    run = Run(letters, stop=["bc"])
    run.step([A, B])
    run.step([], status=[INVALID])
    run.watch.finish()
    assert run.shown == ["ab"]


def test_what_was_held_back_of_an_interrupted_row_is_shown_once(letters):
    run = Run(letters, rows=2, stop=["bc"])
    run.step([A, B], [B, C])
    run.watch.finish()
    run.watch.finish()
    assert run.shown == ["ab", ""]


def test_a_watch_without_a_listener_still_finds_stop_strings(letters):
    run = Run(letters, stop=["bc"])
    run.watch._on_text = None
    assert run.step([AB, C]) == [STOP]
