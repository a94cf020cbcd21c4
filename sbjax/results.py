"""What generation returns."""

import dataclasses
from typing import Any

import numpy as np

from sbjax.engine import STOP, State
from sbjax.statistics import Statistics, summary
from sbjax.streaming import Watch
from sbjax.text import StopStrings, Tokenizer, cut

STATUS_NAMES = ("interrupted", "stop", "length", "invalid")
"""Why a row ended, by its status in the state; a row still running when the run ended was interrupted."""


@dataclasses.dataclass(frozen=True)
class Generation:
    """One continuation of one prompt.

    Attributes:
      prompt: index of the prompt.
      sample: index among the samples of that prompt.
      text: the new text without the stop token or stop string; None without a tokenizer.
      tokens: the new tokens, the stop token or those that complete the stop string included.
      log_probs: log-probability of every token under the target itself (temperature 1, nothing cut),
        None unless asked for.
      finish_reason: "stop" (a stop token), "stop_string", "length" (max_new_tokens), "invalid" (the
        target's logits were not finite; the tokens before are good) or "interrupted".
      stop_string: the string that ended the text, if one did.
      statistics: counters of this row, see ``sbjax.statistics.summary``; they count what the rounds
        emitted, tokens behind a stop string included.
    """

    prompt: int
    sample: int
    text: str | None
    tokens: list[int]
    log_probs: list[float] | None
    finish_reason: str
    stop_string: str | None
    statistics: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a call of ``generate`` returns.

    Attributes:
      generations: all continuations, those of one prompt side by side.
      statistics: counters over all rows, see ``sbjax.statistics.summary``.
      prefill_seconds: wall time until the prompts were read, compilation included.
      decode_seconds: wall time of the rounds, compilation included.
    """

    generations: list[Generation]
    statistics: dict[str, Any]
    prefill_seconds: float
    decode_seconds: float

    @property
    def texts(self) -> list[str | None]:
        """The new texts of all continuations."""
        return [generation.text for generation in self.generations]


def collect(
    state: State,
    prompt_lengths: list[int],
    samples: int,
    tokenizer: Tokenizer | None,
    watch: Watch | None,
    stop: StopStrings,
) -> list[Generation]:
    """Reads a state that has ended into one ``Generation`` a row.

    Args:
      state: the run.
      prompt_lengths: tokens of every prompt.
      samples: rows a prompt.
      tokenizer: None if there is no text.
      watch: what looked at the text while it came, if anything did.
      stop: strings that end a row.
    """
    text, length, status = (np.asarray(x) for x in (state.text, state.length, state.status))
    log_probs = None if state.log_probs is None else np.asarray(state.log_probs)
    host = state.statistics.host()
    found = []
    for row in range(len(text)):
        first = prompt_lengths[row // samples]
        stream = None if watch is None else watch.streams[row]
        matched = None if stream is None else stream.matched
        last = int(length[row]) if matched is None else first + stream.n_ids
        tokens = text[row, first:last].tolist()
        # A stop token ends the text and is no part of it.
        shown = tokens[:-1] if status[row] == STOP and matched is None else tokens
        found.append(
            Generation(
                prompt=row // samples,
                sample=row % samples,
                text=_text(tokenizer, shown, stop),
                tokens=tokens,
                log_probs=None if log_probs is None else log_probs[row, first:last].tolist(),
                finish_reason=STATUS_NAMES[status[row]] if matched is None else "stop_string",
                stop_string=matched,
                statistics=_row_summary(host, row),
            )
        )
    return found


def _text(tokenizer: Tokenizer | None, tokens: list[int], stop: StopStrings) -> str | None:
    """The text of a row; without stop strings decoded whole, which every tokenizer can."""
    if tokenizer is None:
        return None
    return cut(tokenizer, tokens, stop).text if stop.strings else tokenizer.decode(tokens)


def _row_summary(host: Statistics, row: int) -> dict[str, Any]:
    """The counters of one row; forwards are counted for the whole batch only."""
    one = host.replace(**{name: value[row : row + 1] for name, value in host.__dict__.items() if value.ndim})
    figures = summary(one)
    return {name: value for name, value in figures.items() if "forwards" not in name}
