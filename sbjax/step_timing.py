"""Times of single steps of a model: the code that rounds run, in compiled loops of nothing else.

What a target step costs is ``checking.check``, what a draft step costs is ``branching.propose``. The
contents of the cache do not matter to the time, so nothing is read into it.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sbjax.branching import propose
from sbjax.cache import KVCache, after
from sbjax.checking import Question, check
from sbjax.engine import Engine, State, create_state
from sbjax.home import entered
from sbjax.language_model import LanguageModel, Params
from sbjax.methods import Autoregressive, SpecBranch, SpS
from sbjax.noise import KeyedNoise
from sbjax.scores import Sampling
from sbjax.verification import SharedNoise

SLOTS = 256
"""Cache slots of a measurement; half of them are filled."""

_DRAFT_STEPS = 4
_SECONDS_A_CALL = 0.05
_STEPS_AT_MOST = 1000


class Timer:
    """Runs a compiled loop again and again; a call gives the seconds of one step."""

    def __init__(self, loop: Callable[[Any, jax.Array], Any], carry: Any, steps: int = 1):
        """Compiles, and finds out how many turns of the loop make a call that can be timed.

        Args:
          loop: from what it returned last and a count ``[]`` int32 of turns to what it returns.
          carry: what it begins with.
          steps: how many steps a turn is.
        """
        self._loop, self._carry, self._steps, self._turns = loop, carry, steps, 1
        self()
        self()  # arrays that a compiled call has placed may compile once more
        self._turns = max(1, min(int(_SECONDS_A_CALL / (self() * steps)), _STEPS_AT_MOST))

    def __call__(self) -> float:
        """Seconds of a step."""
        begin = time.perf_counter()
        self._carry = jax.block_until_ready(self._loop(self._carry, jnp.int32(self._turns)))
        return (time.perf_counter() - begin) / (self._turns * self._steps)


def target_timer(
    model: LanguageModel, params: Params, tokens: int, *, rows: int = 1, slots: int = SLOTS
) -> Timer:
    """Times target steps: a forward and the picks at temperature 0.

    Args:
      model: the target.
      params: its parameters.
      tokens: ``T``, tokens a row in a forward.
      rows: ``B``.
      slots: ``S``.

    Raises:
      ValueError: if the cache has no room for the tokens.
    """
    filled, slots = _filled(model, slots, tokens)
    method = SpS(draft_length=tokens - 1) if tokens > 1 else Autoregressive()
    engine = Engine(model, model, method, model.vocab_size, widths=(tokens,))
    question = Question(
        tokens=jnp.zeros((rows, tokens), jnp.int32),
        trunk=jnp.full(rows, tokens - 1, jnp.int32),
        length=jnp.full(rows, filled + 1, jnp.int32),
    )
    cache = KVCache.create(model.cache_spec, rows, slots)
    sampling = Sampling.create(rows)

    def loop(carry, count):
        with entered(params):
            return _check_steps(engine, params, *carry, sampling, count)

    return Timer(loop, (question, cache))


@functools.partial(jax.jit, static_argnames=("engine",), donate_argnames=("cache",))
def _check_steps(engine: Engine, params, question: Question, cache: KVCache, sampling, count):
    """Target steps of which each is asked about the picks of the last."""
    rows, tokens = question.tokens.shape
    keys = jnp.zeros((rows, tokens, 2), jnp.uint32)
    shared = SharedNoise(keys, jnp.zeros((rows, tokens, engine.vocab_size), jnp.float32))

    def step(_, carry):
        question, cache = carry
        checked, cache = check(engine, params, question, cache, shared, sampling)
        return question._replace(tokens=checked.picks), cache

    return jax.lax.fori_loop(0, count, step, (question, cache))


def draft_timer(
    model: LanguageModel, params: Params, branches: int, *, rows: int = 1, slots: int = SLOTS
) -> Timer:
    """Times draft steps of branches: a forward of one token each, the picks and their alternatives.

    Args:
      model: the draft.
      params: its parameters.
      branches: ``K``.
      rows: ``B``.
      slots: ``S``.

    Raises:
      ValueError: if the cache has no room for the tokens.
    """
    filled, slots = _filled(model, slots, _DRAFT_STEPS)
    method = SpecBranch(draft_length=_DRAFT_STEPS, branches=branches, head_start=0)
    engine = Engine(model, model, method, model.vocab_size)
    ids = jnp.arange(rows, dtype=jnp.uint32)
    lengths = jnp.full(rows, filled + 1, jnp.int32)
    cache = KVCache.create(model.cache_spec, rows, slots).with_length(lengths - 1)
    state = create_state(
        engine,
        text=jnp.zeros((rows, slots), jnp.int32),
        length=lengths,
        limit=jnp.full(rows, slots, jnp.int32),
        stop_ids=jnp.full((rows, 1), -1, jnp.int32),
        sampling=Sampling.create(rows),
        noise=KeyedNoise.create(jnp.zeros_like(ids), ids),
        target=None,
        draft=cache,
    )

    def loop(carry, count):
        with entered(params):
            return _propose_steps(engine, params, carry, count)

    return Timer(loop, state, _DRAFT_STEPS)


@functools.partial(jax.jit, static_argnames=("engine",), donate_argnames=("state",))
def _propose_steps(engine: Engine, params, state: State, count) -> State:
    """Drafts of which each begins behind the last, in XLA's eyes; nothing of them is kept."""
    rows = jnp.arange(state.length.shape[0])
    positions = engine.method.line_length + engine.method.draft_length
    shared = jnp.zeros((rows.shape[0], positions, engine.vocab_size), jnp.float32)

    def step(_, state: State) -> State:
        branches, _ = propose(engine, params, state, shared)
        made = [leaf for leaf in jax.tree.leaves(branches) if leaf.size and leaf.dtype != bool]
        pending = after(state.text[rows, state.length - 1], *made)
        return state.replace(text=state.text.at[rows, state.length - 1].set(pending))

    return jax.lax.fori_loop(0, count, step, state)


def _filled(model: LanguageModel, slots: int, tokens: int) -> tuple[int, int]:
    """How many slots are filled, and how many there are."""
    slots = min(slots, model.max_length)
    if slots // 2 + tokens > slots:
        raise ValueError(f"{slots} slots, half of them filled, have no room for {tokens} tokens")
    return slots // 2, slots
