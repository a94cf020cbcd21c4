"""SpecBranch: hedged branches over a shared prefix, with H-RAD (arXiv 2506.01979)."""

import dataclasses

import jax
import jax.numpy as jnp

from sbjax.methods.checks import integer, number
from sbjax.methods.overlapped import Overlapped

HEDGES = ("point", "outcomes")


@dataclasses.dataclass(frozen=True)
class SpecBranch(Overlapped):
    """Drafts the main branch and up to ``K - 1`` hedges while the target verifies the trunk.

    ``hedge="point"`` is the paper's placement: ``k = max(1, floor(K (1 - q)))`` branches behind the
    trunk, ``q`` the draft's probability of the main head. ``hedge="outcomes"`` takes the ``K - 1`` most
    probable outcomes ``(n, token)`` anywhere along the trunk; an outcome's probability is estimated as
    the product of the draft's confidences in the trunk before it times that in the token.

    The trunk is all of the line, or what H-RAD and the confidences leave of it: nothing at verdict 0,
    up to the first token of confidence below ``epsilon`` at verdict 1, all at verdict 2. Without a
    predictor every verdict is 1. The tokens behind the cut stay the main branch's head start.

    Attributes:
      draft_length: ``G``, draft steps a round and branch, or "auto".
      branches: ``K`` (``k_max`` of the paper); at a point the draft must be less sure than ``1 - 2 / K``
        to get a hedge at all, so there many branches pay.
      hedge: "point" or "outcomes".
      epsilon: 0 keeps whole lines at verdict 1.
      head_start: tokens that a main branch may be ahead of the others; None is ``G``.
      features: last layers of the target that H-RAD reads; 0 runs without it.
      trust: a verdict of H-RAD of less probability counts as 1, undecided; 0 follows every verdict.
    """

    draft_length: int | str = 5
    branches: int = 4
    hedge: str = "outcomes"
    epsilon: float = 0.0
    head_start: int | None = None
    features: int = 0
    trust: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        integer("branches", self.branches, 1)
        integer("features", self.features, 0)
        number("epsilon", self.epsilon, 0, 1)
        number("trust", self.trust, 0, 1)
        if self.head_start is not None:
            integer("head_start", self.head_start, 0)
        if self.hedge not in HEDGES:
            raise ValueError(f"hedge must be one of {', '.join(HEDGES)}, got {self.hedge!r}")

    @property
    def line_length(self) -> int:
        """``C``: what a round draws behind a head start."""
        return self.draft_length + (self.draft_length if self.head_start is None else self.head_start)

    def hedge_values(self, confidence: jax.Array, chances: jax.Array, trunk: jax.Array) -> jax.Array:
        """See ``base.OverlappedMethod``."""
        position = jnp.arange(confidence.shape[0], dtype=jnp.int32)[:, None]
        if self.hedge == "point":
            rank = jnp.arange(chances.shape[1], dtype=jnp.int32)[None]
            wanted = jnp.floor(self.branches * (1 - confidence[:, None])).astype(jnp.int32)
            return jnp.where((position == trunk) & (rank < wanted - 1), chances, 0)
        reached = jnp.concatenate([jnp.ones(1, jnp.float32), jnp.cumprod(confidence)[:-1]])
        # A chance that underflows is still a possible outcome, and an unused branch costs the same.
        value = jnp.maximum(reached[:, None] * chances, jnp.finfo(jnp.float32).tiny)
        return jnp.where(position <= trunk, value, 0)

    def retain(self, confidence: jax.Array, length: jax.Array, verdict: jax.Array) -> jax.Array:
        """See ``base.OverlappedMethod``."""
        low = (confidence < self.epsilon) | (jnp.arange(confidence.shape[0]) >= length - 1)
        undecided = jnp.argmax(low).astype(jnp.int32)
        return jnp.where(verdict == 0, 0, jnp.where(verdict == 1, undecided, length - 1))
