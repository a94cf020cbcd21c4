"""Rounds in one compiled loop on one device or one mesh, without the host in between."""

import functools

import jax
import jax.numpy as jnp

from sbjax.engine import Engine, State
from sbjax.language_model import Params
from sbjax.rounds import one_round


@functools.partial(jax.jit, static_argnames=("engine",), donate_argnames=("state",))
def run(engine: Engine, params: dict[str, Params], state: State, max_rounds: jax.Array) -> State:
    """Runs rounds until every row has ended, at most ``max_rounds`` of them.

    Args:
      engine: the static part.
      params: ``{"target": ..., "draft": ...}``, plain dicts.
      state: the run so far, donated.
      max_rounds: ``[]`` int32; an array, so that streaming compiles nothing new.

    On a mesh of accelerators it has to be called under ``jax.set_mesh``, where the kernels look for it.

    Returns:
      The run afterwards.
    """

    def going(carry):
        count, state = carry
        return (count < max_rounds) & jnp.any(state.alive)

    def step(carry):
        count, state = carry
        return count + 1, one_round(engine, params, state)

    return jax.lax.while_loop(going, step, (jnp.int32(0), state))[1]
