"""What serial methods do if they do nothing of their own."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from sbjax.methods.checks import draft_length


class Serial:
    """A chain of constant length, nothing remembered (see ``base.SerialMethod``)."""

    features: ClassVar[int] = 0

    def __post_init__(self):
        draft_length(self.draft_length)

    @property
    def trunk_length(self) -> int:
        """See ``base.SerialMethod``."""
        return self.draft_length

    def create(self, text: jax.Array, length: jax.Array) -> Any:
        """See ``base.SerialMethod``."""
        del text, length
        return None

    def stop(self, memory: Any, scores: jax.Array) -> jax.Array:
        """See ``base.SerialMethod``."""
        del memory
        return jnp.zeros(scores.shape[0], bool)

    def adapt(self, memory: Any, drafted: jax.Array, accepted: jax.Array, alive: jax.Array) -> Any:
        """See ``base.SerialMethod``."""
        del drafted, accepted, alive
        return memory
