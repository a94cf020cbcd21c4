"""Speculative sampling with one chain of constant length (Leviathan et al. 2023; Chen et al. 2023)."""

import dataclasses
from typing import ClassVar

from sbjax.methods.serial import Serial


@dataclasses.dataclass(frozen=True)
class SpS(Serial):
    """The draft proposes a chain of ``draft_length`` tokens, the target verifies it in one forward.

    Attributes:
      draft_length: ``G``, tokens drafted a round, or "auto".

    Raises:
      ValueError: if ``draft_length`` is not a positive integer.
    """

    overlapped: ClassVar[bool] = False
    draft_length: int | str = 5
