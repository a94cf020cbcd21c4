"""What a method is: a policy of the round, a frozen dataclass of settings with small pure functions."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Method(Protocol):
    """A policy of the one round. Instances are static: hashable and compared by value.

    Attributes:
      draft_length: ``G``, the longest trunk; 0 means that there is nothing to verify.
    """

    draft_length: int
