"""Prompt lookup: what followed the last tokens where they last stood (A. Saxena, prompt-lookup-decoding)."""

import dataclasses
from typing import ClassVar

from sbjax.methods.checks import integer
from sbjax.methods.serial import Serial


@dataclasses.dataclass(frozen=True)
class PromptLookup(Serial):
    """The trunk is copied from the row's own text, prompt included; there is no draft model.

    It is what followed the latest place where the longest ending of the text, up to ``ngram`` tokens,
    stood before. A row whose last token is new has no trunk.

    Attributes:
      tokens: how many tokens are copied.
      ngram: the longest ending that is looked for.
    """

    draft_length: ClassVar[int] = 0
    overlapped: ClassVar[bool] = False
    tokens: int = 7
    ngram: int = 3

    def __post_init__(self):
        integer("tokens", self.tokens, 1, "; use Autoregressive() for 0")
        integer("ngram", self.ngram, 1)

    @property
    def trunk_length(self) -> int:
        """See ``base.SerialMethod``."""
        return self.tokens
