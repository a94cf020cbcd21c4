"""Rounds with draft and target on meshes of their own, both at work at the same time.

Every round the host dispatches the target's program and the draft's before it waits for either. What
crosses are token ids, lengths and flags. The host runs ahead of the devices by at most ``RUN_AHEAD``
rounds and reads nothing but the flags of rounds that long ago.
"""

import collections
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sbjax import hrad
from sbjax.branching import Branches, propose
from sbjax.cache import KVCache
from sbjax.checking import Checked, Question, check
from sbjax.engine import Engine, State
from sbjax.home import entered, home_of, place, place_cache
from sbjax.indexing import span
from sbjax.language_model import Params
from sbjax.rounds import finish_overlapped, line_trunk, question, round_noise
from sbjax.scores import Sampling
from sbjax.verification import Outcome, shared_noise

RUN_AHEAD = 2
"""Rounds that may be dispatched before the flags of the first of them are read: with collectives an
unbounded run-ahead can deadlock XLA's CPU backend."""


class _Answer(NamedTuple):
    """What crosses back: the outcome, and of every position whether it was usable."""

    outcome: Outcome
    checked: Checked
    logits: jax.Array | None


def host_read(array: jax.Array) -> np.ndarray:
    """The only way by which the loop looks at an array; waits until it is there."""
    host_read.count += 1
    return np.asarray(array)


host_read.count = 0


def run(engine: Engine, params: dict[str, Params], state: State, max_rounds: int) -> State:
    """Runs rounds until every row has ended, at most ``max_rounds`` of them.

    Args:
      engine: the static part; a method with overlap, the shared-noise rule.
      params: ``{"target": ..., "draft": ...}`` on devices of their own; "predictor" may lie anywhere.
      state: the run so far, from ``start`` or a call of this function; donated.
      max_rounds: how many rounds at most.

    Returns:
      The run afterwards, the target's cache on its devices, the rest on the draft's.

    Raises:
      ValueError: the method has no overlap, or the rule needs rows of the vocabulary's size on both sides.
    """
    refuse(engine)
    homes = {name: home_of(params[name]) for name in ("target", "draft")}
    rows = state.text.shape[0]
    fixed = place((state.sampling, state.noise), homes["target"], rows)
    predictor = params.get("predictor")
    sides = {name: predictor and place(predictor, home, -1) for name, home in homes.items()}
    theirs = {"target": params["target"], "predictor": sides["target"]}
    cache, state = state.target, state.replace(target=None)
    asked, running = _ask(engine, state), collections.deque()
    for _ in range(int(max_rounds)):
        here = place(asked, homes["target"], rows)
        with entered(params["target"]):
            answer, cache = _answer(engine, theirs, here, cache, *fixed)
        answer = place(answer, homes["draft"], rows)
        with entered(params["draft"]):
            branches = _propose(engine, params["draft"], state)
            state, asked, alive = _finish(engine, sides["draft"], state, branches, answer)
        running.append(alive)
        if len(running) >= RUN_AHEAD and not host_read(running.popleft()):
            break
    # The flags that are left are not needed, but no round may be under way when the caller goes on.
    for alive in running:
        host_read(alive)
    cache = cache.with_length(place(state.length - 1, homes["target"], rows))
    return state.replace(target=place_cache(cache, homes["target"]))


def refuse(engine: Engine) -> None:
    """Raises ValueError where two meshes cannot do what the engine asks for."""
    name = type(engine.method).__name__
    if not engine.method.overlapped:
        raise ValueError(
            f"{name} drafts and verifies in turn: put both models on one mesh, or use PEARL or SpecBranch"
        )
    if engine.rule != "match":
        raise ValueError(
            f'rule "{engine.rule}" needs whole rows of both models: put them on one mesh, or use rule "match"'
        )


@functools.partial(jax.jit, static_argnames=("engine",))
def _ask(engine: Engine, state: State) -> Question:
    """What the target is asked first."""
    return question(state, line_trunk(engine, state))


@functools.partial(jax.jit, static_argnames=("engine",), donate_argnames=("cache",))
def _answer(
    engine: Engine,
    params: dict[str, Params],
    asked: Question,
    cache: KVCache,
    sampling: Sampling,
    noise: Any,
) -> tuple[_Answer, KVCache]:
    """The target's round: one forward, and what follows from it."""
    places = span(asked.length, engine.trunk_limit + 1)
    shared = shared_noise(noise, places, engine.vocab_size, sampling)
    checked, cache = check(engine, params["target"], asked, cache, shared, sampling)
    outcome = checked.outcome
    logits = hrad.target_logits(engine, params, checked.features, outcome)
    return _Answer(outcome, checked._replace(picks=None, outcome=None, features=None), logits), cache


@functools.partial(jax.jit, static_argnames=("engine",))
def _propose(engine: Engine, params: Params, state: State) -> Branches:
    """The draft's round; the state is only read."""
    shared = round_noise(engine, state, engine.method.line_length + engine.method.draft_length)
    return propose(engine, params, state, shared.rows)[0]


@functools.partial(jax.jit, static_argnames=("engine",), donate_argnames=("state",))
def _finish(
    engine: Engine,
    predictor: Params | None,
    state: State,
    branches: Branches,
    answer: _Answer,
) -> tuple[State, Question, jax.Array]:
    """The end of a round on the draft's side, the next question, and whether any row still runs."""
    state = finish_overlapped(
        engine, predictor, state, branches, answer.checked, answer.outcome, answer.logits
    )
    return state, question(state, line_trunk(engine, state)), jnp.any(state.alive)
