"""Strings that end a text, wherever in a token they begin or end."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

from sbjax.text.stream_decoder import StreamDecoder
from sbjax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class StopStrings:
    """A set of stop strings.

    Attributes:
      strings: the strings. A single str and a list are accepted and kept as a tuple.
    """

    strings: tuple[str, ...] = ()

    def __post_init__(self):
        given = self.strings
        if isinstance(given, str):
            given = (given,)
        if not isinstance(given, Sequence) or not all(isinstance(string, str) for string in given):
            raise TypeError(f"stop strings have to be a str or a list of str, not {self.strings!r}")
        if "" in given:
            raise ValueError("an empty stop string would end every text before it starts")
        object.__setattr__(self, "strings", tuple(dict.fromkeys(given)))

    def find(self, text: str) -> tuple[int, str] | None:
        """Finds the first stop string.

        Args:
          text: the text to search.

        Returns:
          Where it starts and which it is: the earliest start, of several there the longest. None if
          there is none.
        """
        found = [(text.find(string), string) for string in self.strings]
        found = [pair for pair in found if pair[0] >= 0]
        return min(found, key=lambda pair: (pair[0], -len(pair[1])), default=None)

    def hold(self, text: str) -> int:
        """How many characters at the end of a text could be the beginning of a stop string.

        Args:
          text: a text that holds no stop string.

        Returns:
          Length of the longest such suffix; a stream must not show it yet.
        """
        longest = min(len(text), max(map(len, self.strings), default=0) - 1)
        return next((n for n in range(longest, 0, -1) if text[-n:] in self._beginnings), 0)

    @functools.cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(string[:end] for string in self.strings for end in range(1, len(string)))


class TextStream:
    """The visible text of a row as its ids come, up to a stop string.

    Ids are looked at one by one, so where the text ends does not depend on how many came at once. It ends
    with the first id after which the text holds a stop string; ids behind that one are not taken.

    Attributes:
      n_ids: ids taken, up to and including the one that completed a stop string.
      matched: the stop string that ended the text, None as long as none did.
    """

    def __init__(self, tokenizer: Tokenizer, stop: StopStrings | None = None, skip_special_tokens=True):
        """Starts an empty text.

        Args:
          tokenizer: turns ids into text.
          stop: what ends the text; None for nothing.
          skip_special_tokens: whether special tokens are left out of the text, and so of the search.
        """
        self._decoder = StreamDecoder(tokenizer, skip_special_tokens)
        self._stop = stop or StopStrings()
        self._held = ""  # certain text that could be the beginning of a stop string
        self.n_ids = 0
        self.matched: str | None = None

    def push(self, ids: Sequence[int]) -> str:
        """Takes the next ids.

        Args:
          ids: any number of ids; ignored once a stop string was found.

        Returns:
          The text that can be shown now: certain, and no part of a stop string.
        """
        if not self._stop.strings:
            self.n_ids += len(ids)
            return self._decoder.push(ids)
        shown = []
        for index in ids:
            if self.matched is not None:
                break
            shown.append(self._push_one(index))
        return "".join(shown)

    def _push_one(self, index: int) -> str:
        self.n_ids += 1
        text = self._held + self._decoder.push([index])
        # What could begin a stop string was held back, so none can have started before `text`.
        if (visible := self._end(text + self._decoder.tail())) is not None:
            return visible
        keep = self._stop.hold(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _end(self, text: str) -> str | None:
        if (found := self._stop.find(text)) is None:
            return None
        start, self.matched = found
        self._held = ""
        return text[:start]

    def finish(self) -> str:
        """Ends the text: returns what was held back, nothing after a stop string."""
        if self.matched is not None:
            return ""
        text = self._held + self._decoder.finish()
        visible = self._end(text)
        self._held = ""
        return text if visible is None else visible


class Cut(NamedTuple):
    """Where a text ends.

    Attributes:
      n_ids: how many ids to keep, up to and including the one that completed the stop string.
      text: their text before the stop string.
      matched: the stop string, None if none was found; then all ids are kept.
    """

    n_ids: int
    text: str
    matched: str | None


def cut(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    strings: StopStrings | str | Sequence[str],
    skip_special_tokens: bool = True,
) -> Cut:
    """Cuts generated ids at the first stop string in their text.

    Args:
      tokenizer: turns ids into text.
      ids: the generated ids of one row, without the prompt.
      strings: the stop strings.
      skip_special_tokens: whether special tokens are left out of the text, and so of the search.

    Returns:
      What to keep. The text excludes the stop string, and what the last token has behind it.
    """
    stop = strings if isinstance(strings, StopStrings) else StopStrings(strings)
    stream = TextStream(tokenizer, stop, skip_special_tokens)
    text = stream.push(ids) + stream.finish()
    return Cut(stream.n_ids, text, stream.matched)
