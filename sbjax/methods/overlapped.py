"""What methods with overlap share: one main branch, the whole line as trunk, no hedges."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from sbjax.methods.checks import draft_length


class Overlapped:
    """See ``base.OverlappedMethod``; without hedges and H-RAD unless a method says otherwise."""

    overlapped: ClassVar[bool] = True
    branches: int = 1
    features: int = 0
    trust: float = 0.0

    def __post_init__(self):
        draft_length(self.draft_length)

    @property
    def line_length(self) -> int:
        """``C``: all that a round draws."""
        return self.draft_length

    def hedge_values(self, confidence: jax.Array, chances: jax.Array, trunk: jax.Array) -> jax.Array:
        """See ``base.OverlappedMethod``."""
        del confidence, trunk
        return jnp.zeros_like(chances)

    def retain(self, confidence: jax.Array, length: jax.Array, verdict: jax.Array) -> jax.Array:
        """See ``base.OverlappedMethod``."""
        del confidence, verdict
        return length - 1
