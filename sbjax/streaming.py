"""Looks at the text of a run between two calls of the compiled loop: streams it, finds stop strings."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbjax.engine import RUNNING, STOP, State
from sbjax.text import StopStrings, TextStream, Tokenizer


class Watch:
    """The visible text of all rows of a run.

    Attributes:
      streams: one a row.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        stop: StopStrings,
        lengths: np.ndarray,
        on_text: Callable[[int, str], Any] | None,
    ):
        """Starts behind the prompts.

        Args:
          tokenizer: turns ids into text.
          stop: strings that end a row.
          lengths: ``[B]``, lengths of the prompts.
          on_text: called as ``on_text(row, text)`` with new text that is certain; None for stop strings only.
        """
        self.streams = [TextStream(tokenizer, stop) for _ in lengths]
        self._seen = np.array(lengths)
        self._on_text = on_text

    def look(self, state: State) -> jax.Array:
        """Takes the new tokens of every row.

        Returns:
          The status ``[B]`` of the rows, STOP where a stop string came.
        """
        text, length, status = (np.asarray(x) for x in (state.text, state.length, state.status))
        status = status.copy()
        for row, stream in enumerate(self.streams):
            new = text[row, self._seen[row] : length[row]].tolist()
            if not new:
                continue
            # A stop token ends the text and is no part of it.
            self._show(row, stream.push(new[:-1] if status[row] == STOP else new))
            if stream.matched is not None:
                status[row] = STOP
            elif status[row] != RUNNING:
                self._show(row, stream.finish())
        self._seen = length
        # As bound to its place as the rest of the run: anything else would compile the loop again.
        found = jnp.asarray(status)
        return jax.device_put(found, state.status.sharding) if state.status.committed else found

    def finish(self) -> None:
        """Shows what was held back: of rows that were interrupted, or that ended without another token."""
        for row, stream in enumerate(self.streams):
            self._show(row, stream.finish())

    def _show(self, row: int, text: str) -> None:
        if text and self._on_text is not None:
            self._on_text(int(row), text)
