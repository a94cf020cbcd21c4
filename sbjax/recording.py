"""Records a run: the real rounds, one a call, and what the host can see of each.

Everything is read off the states between two rounds and the counters' differences. Only what the draft
wrote and lost leaves no mark in a state, so the draft's part of the round is run a second time by itself;
it is a pure function of the state before the round. That doubles the draft's work, and tells its time.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbjax.branching import propose
from sbjax.drafting import draft_chain
from sbjax.engine import RUNNING, Engine, State
from sbjax.home import entered
from sbjax.language_model import Params
from sbjax.lookup import looked_up
from sbjax.loops.one_program import run
from sbjax.methods import PromptLookup
from sbjax.rounds import round_noise
from sbjax.text import Tokenizer
from sbjax.trace import Round, Row, RowRound, Trace
from sbjax.trace_rows import RowReader
from sbjax.trace_text import pieces, texts


class Recorder:
    """Runs the rounds of one run and notes what happened; ``sbjax.generate`` takes one.

    Attributes:
      emitted: tokens so far, of all rows together.
    """

    def __init__(self, on_round: Callable[[int], Any] | None = None):
        """Starts an empty recording.

        Args:
          on_round: called after every round with ``emitted``.
        """
        self.emitted = 0
        self._on_round = on_round
        self._engine: Engine | None = None
        self._prompts: list[list[int]] = []
        self._rounds: list[Round] = []
        self._rows: list[list[RowRound]] = []

    def step(self, engine: Engine, params: dict[str, Params], state: State) -> State:
        """Runs one round.

        Args:
          engine: the static part, the same at every call.
          params: as ``run`` takes them.
          state: the run so far, donated.

        Returns:
          The run afterwards.
        """
        with entered(params["target"]):
            if self._engine is None:
                state = self._begin(engine, params, state)
            before = _host(state)
            written, draft_seconds = _timed(_drafts, engine, params, state)
            state, seconds = _timed(run, engine, params, state, jnp.int32(1))
        after, written = _host(state), jax.device_get(written)
        for row in np.flatnonzero(before["status"] == RUNNING).tolist():
            reader = RowReader(engine, row, before, after, written)
            self._rows[row].append(reader.read(len(self._rounds)))
        self._rounds.append(_round(before, after, seconds, draft_seconds))
        self.emitted = int(after["statistics"].emitted.sum())
        if self._on_round is not None:
            self._on_round(self.emitted)
        return state

    def _begin(self, engine: Engine, params: dict[str, Params], state: State) -> State:
        """Notes the prompts, and compiles so that no round's time holds it."""
        self._engine = engine
        host = _host(state)
        self._prompts = [text[:n].tolist() for text, n in zip(host["text"], host["length"], strict=True)]
        self._rows = [[] for _ in self._prompts]
        jax.block_until_ready(_drafts(engine, params, state))
        return jax.block_until_ready(run(engine, params, state, jnp.int32(0)))

    def trace(self, tokenizer: Tokenizer | None, finish_reasons: Sequence[str]) -> Trace:
        """What was recorded.

        Args:
          tokenizer: turns ids into text; without one a token's text is its number.
          finish_reasons: why each row ended, see ``Generation``.

        Raises:
          ValueError: no round was recorded.
        """
        if self._engine is None:
            raise ValueError("nothing was recorded: no round was run")
        engine, method = self._engine, self._engine.method
        rows = [
            Row(
                prompt,
                *texts(tokenizer, prompt, [token for each in seen for token in each.emitted]),
                why,
                seen,
            )
            for prompt, seen, why in zip(self._prompts, self._rows, finish_reasons, strict=True)
        ]
        return Trace(
            method=type(method).__name__,
            settings=dataclasses.asdict(method),
            rule=engine.rule,
            overlapped=method.overlapped,
            branches=method.branches if method.overlapped else int(engine.draft is not None),
            rounds=self._rounds,
            rows=rows,
            pieces=pieces(tokenizer, {token for row in rows for each in row.rounds for token in each.ids}),
        )


@functools.partial(jax.jit, static_argnames=("engine",))
def _drafts(engine: Engine, params: dict[str, Params], state: State) -> dict[str, jax.Array]:
    """What the draft writes in the next round; the same functions as in the round itself."""
    method = engine.method
    if method.overlapped:
        shared = round_noise(engine, state, method.line_length + method.draft_length)
        branches, _ = propose(engine, params["draft"], state, shared and shared.rows)
        found = {name: getattr(branches, name) for name in ("live", "fork", "head", "length")}
        return {**found, "behind": branches.behind.tokens}
    if isinstance(method, PromptLookup):
        return {"trunk": looked_up(engine, state).trunk.tokens}
    if not method.draft_length:
        return {}
    shared = round_noise(engine, state, engine.trunk_limit + 1)
    chain = draft_chain(engine, params["draft"], state, shared and shared.rows)
    return {"trunk": chain.trunk.tokens}


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return result, time.perf_counter() - begin


def _host(state: State) -> dict[str, Any]:
    """Copies of what is read of a state, since the next call donates its buffers."""
    line = None
    if state.line is not None:
        line = {"tokens": state.line.drawn.tokens, "length": state.line.length, "trunk": state.line.trunk}
    found = {name: getattr(state, name) for name in ("text", "length", "status", "statistics")}
    return jax.tree.map(np.array, {**found, "line": line})


def _round(before: dict, after: dict, seconds: float, draft_seconds: float) -> Round:
    """The whole batch's part; the one counter of widths that rose tells the width."""
    old, new = before["statistics"], after["statistics"]
    width = int(new.widths[np.argmax(new.target_forwards - old.target_forwards)])
    return Round(width, int(new.draft_forwards - old.draft_forwards), seconds, draft_seconds)
