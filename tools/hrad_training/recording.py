"""Recording: rounds of the real engine with whole lines as trunks, and what became of every line."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hrad_training.records import record_dtype
from sbjax import hrad
from sbjax.engine import RUNNING, Engine, State
from sbjax.language_model import Params
from sbjax.noise import KeyedNoise
from sbjax.rounds import draft_and_check, finish_overlapped
from sbjax.scores import Sampling
from sbjax.start import bucket, start

NOT_RECORDED = -1
"""The group of rows that only fill up a batch."""


class Job(NamedTuple):
    """One row to be run: its number among all, a prompt, its group, and the temperature."""

    row: int
    prompt: list[int]
    group: int
    temperature: float


class Seen(NamedTuple):
    """What is noted of a round, the line being the one behind it.

    Attributes:
      accepted: ``[B]`` int32, how much of the line before was accepted.
      inputs: ``[B, F + 1, D]`` float16, see ``hrad.target_inputs``.
      confidence: ``[B, C]`` float32, of the line.
      length: ``[B]`` int32, tokens of the line.
      trunk: ``[B]`` int32, how many of them are trunk.
      running: ``[B]`` bool, rows that go on.
    """

    accepted: np.ndarray
    inputs: np.ndarray
    confidence: np.ndarray
    length: np.ndarray
    trunk: np.ndarray
    running: np.ndarray


@functools.partial(jax.jit, static_argnames=("engine",), donate_argnames=("state",))
def recorded_round(engine: Engine, params: dict[str, Params], state: State) -> tuple[State, Seen]:
    """One overlapped round in which H-RAD decides nothing."""
    state, branches, checked, outcome = draft_and_check(engine, params, state)
    inputs = hrad.target_inputs(engine, params["target"], checked.features, outcome)
    state = finish_overlapped(engine, None, state, branches, checked, outcome, None)
    line = state.line
    seen = Seen(
        accepted=outcome.accepted,
        inputs=inputs.astype(jnp.float16),
        confidence=line.drawn.confidence,
        length=line.length,
        trunk=line.trunk,
        running=state.status == RUNNING,
    )
    return state, seen


def record(
    engine: Engine, params: dict[str, Params], jobs: Sequence[Job], new_tokens: int, slots: int, seed: int
) -> np.ndarray:
    """Runs the rows to their ends.

    Args:
      engine: its method reads features, and keeps whole lines at verdict "undecided" (epsilon 0).
      params: of target and draft.
      jobs: one a row.
      new_tokens: tokens to generate a row.
      slots: of the caches, the same in every call so that nothing is compiled again.
      seed: of the rows' chance.

    Returns:
      A record for every line of which the target could have accepted something, see ``records``.
    """
    rows = len(jobs)
    temperature = np.array([job.temperature for job in jobs], np.float32)
    state = start(
        engine,
        params,
        [job.prompt for job in jobs],
        [new_tokens] * rows,
        sampling=Sampling.create(rows, temperature),
        noise=KeyedNoise.create(
            jnp.full(rows, seed, jnp.uint32), jnp.array([job.row for job in jobs], jnp.uint32)
        ),
        slots=slots,
    )
    groups = np.array([job.group for job in jobs], np.int32)
    found, before = [], None
    while np.any(np.asarray(state.status) == RUNNING):
        state, seen = recorded_round(engine, params, state)
        seen = jax.tree.map(np.array, seen)  # copies, since the state they come from is donated
        if before is not None:
            found.append(_records(engine, before, seen.accepted, groups, temperature))
        before = seen
    return np.concatenate(found) if found else np.zeros(0, _dtype(engine, before))


def _dtype(engine: Engine, seen: Seen) -> np.dtype:
    return record_dtype(engine.method.features, seen.inputs.shape[-1], engine.method.line_length)


def _records(engine: Engine, line: Seen, accepted, groups, temperature) -> np.ndarray:
    """What became of the lines. A line that was cut because the text was to end is left out."""
    whole = (line.length > 1) & (line.trunk == line.length - 1) & line.running & (groups != NOT_RECORDED)
    rows = np.flatnonzero(whole & np.isfinite(line.inputs).all((1, 2)))
    records = np.zeros(len(rows), _dtype(engine, line))
    records["group"], records["temperature"] = groups[rows], temperature[rows]
    records["inputs"], records["confidence"] = line.inputs[rows], line.confidence[rows]
    records["length"], records["accepted"] = line.length[rows], accepted[rows]
    return records


def slots_for(engine: Engine, prompts: Sequence[Sequence[int]], new_tokens: int) -> int:
    """Slots that the longest prompt needs.

    Raises:
      ValueError: it does not fit into the target's context.
    """
    longest, context = max(map(len, prompts)), engine.target.max_length
    if longest + new_tokens > context:
        raise ValueError(
            f"a prompt has {longest} tokens and {new_tokens} are to follow, but the target's context is "
            f"{context}: lower --prompt-tokens or --max-new-tokens"
        )
    return bucket(longest + new_tokens + engine.slack)
