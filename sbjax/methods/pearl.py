"""PEARL: parallel drafting with pre-verify and post-verify (arXiv 2408.11850)."""

import dataclasses

from sbjax.methods.overlapped import Overlapped


@dataclasses.dataclass(frozen=True)
class PEARL(Overlapped):
    """While the target verifies one segment, the draft writes the next, betting on full acceptance.

    Both modes of the paper fall out of the round. After a hit the target checks the ``G - 1`` tokens
    behind the pending one and, by its last row, the main head: post-verify. After a miss the trunk is
    empty and its one row checks the first token of the new segment: pre-verify.

    Attributes:
      draft_length: ``G``, draft steps a round, best near the ratio of the models' speeds, or "auto".
    """

    draft_length: int | str = 5
