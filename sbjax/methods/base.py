"""What a method is: a policy of the round, a frozen dataclass of settings with small pure functions."""

from typing import Any, Protocol, runtime_checkable

import jax


@runtime_checkable
class Method(Protocol):
    """A policy of the one round. Instances are static: hashable and compared by value.

    Attributes:
      draft_length: ``G``, draft steps a round; 0 means that no draft model is needed.
      overlapped: whether draft and target work at the same time, on the line of the round before.
      features: how many of the target's last layers the policy looks at; 0 is none.
    """

    draft_length: int
    overlapped: bool
    features: int


@runtime_checkable
class SerialMethod(Method, Protocol):
    """A method that drafts a chain of at most ``G`` tokens first and has it verified afterwards.

    Attributes:
      trunk_length: tokens of the longest trunk; ``G`` where a draft model makes it.
    """

    trunk_length: int

    def create(self, text: jax.Array, length: jax.Array) -> Any:
        """What the policy remembers between rounds; None if nothing.

        Args:
          text: ``[B, S]`` int32, the prompts.
          length: ``[B]`` int32, their lengths.
        """
        ...

    def stop(self, memory: Any, scores: jax.Array) -> jax.Array:
        """Whether a chain ends behind the token just drawn: ``[B]`` bool.

        Args:
          memory: what the policy remembers.
          scores: ``[B, V]``, the row of scores the token was drawn from, never the row behind it.
        """
        ...

    def adapt(self, memory: Any, drafted: jax.Array, accepted: jax.Array, alive: jax.Array) -> Any:
        """What the policy remembers after a round, from counts ``[B]`` and the rows that ran ``[B]``."""
        ...


@runtime_checkable
class OverlappedMethod(Method, Protocol):
    """A method that drafts branches while the target verifies.

    Attributes:
      branches: ``K``, the main branch and at most ``K - 1`` hedges.
      line_length: ``C``, tokens that a line can hold, at least ``G``.
      trust: least probability of a verdict of H-RAD that is followed.
    """

    branches: int
    line_length: int
    trust: float

    def hedge_values(self, confidence: jax.Array, chances: jax.Array, trunk: jax.Array) -> jax.Array:
        """Values of the possible hedges of one row: the largest ``K - 1`` become branches.

        Args:
          confidence: ``[C]`` float32, the draft's probability of every token of the line.
          chances: ``[C, K - 1]`` float32, probabilities of the alternatives at every position.
          trunk: ``[]`` int32; hedges are possible at positions ``0 .. trunk``.

        Returns:
          ``[C, K - 1]`` float32; 0 or less is no hedge.
        """
        ...

    def retain(self, confidence: jax.Array, length: jax.Array, verdict: jax.Array) -> jax.Array:
        """How much of one row's line becomes the trunk: ``[]`` int32.

        Args:
          confidence: ``[C]`` float32, see ``hedge_values``.
          length: ``[]`` int32, tokens of the line; at most one less can be trunk.
          verdict: ``[]`` int32, H-RAD's: 0 all will be refused, 1 undecided, 2 all accepted.
        """
        ...
