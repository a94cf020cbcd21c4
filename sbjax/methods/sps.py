"""Speculative sampling with one chain of constant length (Leviathan et al. 2023; Chen et al. 2023)."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class SpS:
    """The draft proposes a chain of ``draft_length`` tokens, the target verifies it in one forward.

    Attributes:
      draft_length: ``G``, tokens drafted a round.

    Raises:
      ValueError: if ``draft_length`` is not a positive integer.
    """

    draft_length: int = 5

    def __post_init__(self):
        if isinstance(self.draft_length, bool) or not isinstance(self.draft_length, int):
            raise ValueError(f"draft_length must be an integer, got {self.draft_length!r}")
        if self.draft_length < 1:
            raise ValueError(
                f"draft_length must be at least 1, got {self.draft_length}; use Autoregressive() for 0"
            )
