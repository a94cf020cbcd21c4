"""Ways to run the same round."""

from collections.abc import Callable

import jax

from sbjax.engine import Engine, State
from sbjax.home import apart, entered
from sbjax.language_model import Params
from sbjax.loops import one_program, two_meshes


def loop_of(params: dict[str, Params]) -> Callable:
    """The loop for where the parameters lie: ``two_meshes.run`` if draft and target are apart."""
    return two_meshes.run if apart(params) else _one_program


def _one_program(engine: Engine, params: dict[str, Params], state: State, max_rounds: jax.Array) -> State:
    """``one_program.run`` under the mesh that the parameters lie on."""
    with entered(params["target"]):
        return one_program.run(engine, params, state, max_rounds)


def check_placement(engine: Engine, params: dict[str, Params], recorded: bool) -> None:
    """Refuses what cannot be done where the parameters lie.

    Raises:
      ValueError: with the models apart, a method without overlap, a rule that compares rows, or a recorder.
    """
    if not apart(params):
        return
    two_meshes.refuse(engine)
    if recorded:
        raise ValueError("a recorder looks at every round: put both models on one mesh, or leave it out")
