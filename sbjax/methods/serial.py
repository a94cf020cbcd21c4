"""What serial methods do if they do nothing of their own."""

from typing import Any

import jax
import jax.numpy as jnp

from sbjax.methods.checks import integer


class Serial:
    """A chain of constant length, nothing remembered (see ``base.SerialMethod``)."""

    def __post_init__(self):
        if self.draft_length != "auto":
            integer("draft_length", self.draft_length, 1, "; use Autoregressive() for 0")

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
