"""Text as its tokens come, never a character that a later token could change."""

from collections.abc import Sequence

from sbjax.text.tokenizer import Tokenizer

# UTF-8 characters have at most 4 bytes and a token has at least one. So whatever state the decoder would
# have been in before this many tokens, it agrees on the last of them, even in bytes that are not UTF-8.
_CONTEXT = 8
_REPLACEMENT = "\ufffd"


class StreamDecoder:
    """Decodes ids as they come.

    All pushes and `finish` together give exactly `tokenizer.decode` of all ids. Held back is what could
    still change: a character whose last bytes are missing and, for vocabularies with byte fallback, a run
    of byte tokens (as a whole it is text or replacement characters). A push decodes the new ids with a
    fixed number of ids before them, so its cost does not grow with the text; a run of byte tokens is
    decoded once, when it ends.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True):
        """Starts an empty text.

        Args:
          tokenizer: turns ids into text.
          skip_special_tokens: whether to leave special tokens out.

        Raises:
          ValueError: the tokenizer's decoder changes text that it already gave.
        """
        if (name := tokenizer.not_growing()) is not None:
            raise ValueError(
                f"text of a tokenizer with the decoder {name} cannot be streamed, only decoded whole"
            )
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._window: list[int] = []
        self._run: list[int] = []  # byte tokens behind the window, not decoded yet
        self._shown = 0  # characters of the window's text that were given out

    def push(self, ids: Sequence[int]) -> str:
        """Takes the next ids.

        Args:
          ids: any number of ids, each in [0, vocab_size).

        Returns:
          The text that is certain now and was not before; often empty.
        """
        ids = [
            index for index in self._tokenizer.check_ids(ids) if self._tokenizer.has_text(index, self._skip)
        ]
        settled = max((n for n, index in enumerate(ids, 1) if not self._tokenizer.is_byte(index)), default=0)
        if not settled:
            self._run += ids
            return ""
        self._window += self._run + ids[:settled]
        self._run = ids[settled:]
        text = self._certain()
        new, self._shown = text[self._shown :], len(text)
        if len(self._window) > _CONTEXT:
            del self._window[:-_CONTEXT]
            self._shown = len(self._certain())
        return new

    def tail(self) -> str:
        """The text held back that would follow if the text ended here; empty if it is half a character."""
        rest = self._rest()
        return "" if _REPLACEMENT in rest else rest

    def finish(self) -> str:
        """Ends the text: returns what was held back, with replacement characters for missing bytes."""
        rest = self._rest()
        self._window, self._run, self._shown = [], [], 0
        return rest

    def _rest(self) -> str:
        return self._decode(self._window + self._run)[self._shown :]

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip)

    def _certain(self) -> str:
        """The window's text without a last character that more bytes could still complete."""
        text = self._decode(self._window)
        return text[:-1] if text.endswith(_REPLACEMENT) else text
