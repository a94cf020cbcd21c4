"""Plain decoding: one token a target forward. The text that every other method has to give."""

import dataclasses
from typing import ClassVar


@dataclasses.dataclass(frozen=True)
class Autoregressive:
    """Plain decoding as the round with an empty trunk."""

    draft_length: ClassVar[int] = 0
