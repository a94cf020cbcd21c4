"""Plain decoding: one token a target forward. The text that every other method has to give."""

import dataclasses
from typing import ClassVar

from sbjax.methods.serial import Serial


@dataclasses.dataclass(frozen=True)
class Autoregressive(Serial):
    """Plain decoding as the round with an empty trunk."""

    overlapped: ClassVar[bool] = False
    draft_length: ClassVar[int] = 0

    def __post_init__(self):
        """There is nothing to check."""
