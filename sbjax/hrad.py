"""H-RAD: from the target's last layers to how much of a line is worth verifying (arXiv 2506.01979)."""

import jax
import jax.numpy as jnp

from sbjax.engine import Engine
from sbjax.language_model import Params
from sbjax.verification import Outcome


def verdict(engine: Engine, params: dict[str, Params], features: jax.Array | None, outcome: Outcome) -> jax.Array:
    """``[B]`` int32: 0 nothing of the next trunk will be accepted, 1 undecided, 2 everything."""
    return jnp.ones_like(outcome.token)
