"""The exact law of the text that the real engine emits under the token or the block rule.

All outcomes of all draws are tried: every row of a batch follows another script of chance and keeps
its probability (``sbjax.noise.ScriptedNoise``). Between two rounds rows of the same text are joined,
one of them going on for all with the caches it happens to have, so that many rounds are in reach.
"""

import collections
import itertools
from collections.abc import Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from sbjax.engine import RUNNING, Engine, State
from sbjax.language_model import Params
from sbjax.loops.one_program import run
from sbjax.noise import ScriptedNoise
from sbjax.scores import Sampling
from sbjax.start import start
from sbjax.testing.laws import Law

_ENTRIES = 32


@chex.dataclass(frozen=True, mappable_dataclass=False)
class _RecordingNoise(ScriptedNoise):
    """Scripted chance that also notes how many outcomes each draw had.

    Attributes:
      arity: ``[n]`` int32, 1 for entries that no draw took.
    """

    arity: jax.Array

    def _take(self, law: jax.Array):
        outcome, noise = ScriptedNoise._take(self, law)
        return outcome, noise.replace(arity=self.arity.at[self.cursor].set(law.shape[1]))


def enumerate_law(
    engine: Engine,
    params: dict[str, Params],
    prompt: Sequence[int],
    new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    stop_ids: Sequence[int] = (),
    batch: int = 2048,
    seed: int = 0,
) -> Law:
    """Sums the probabilities of all scripts by the text they emit.

    For tiny vocabularies: a serial round has ``V ** G * 2 ** G * V`` scripts for each text so far, an
    overlapped one ``V ** (K G) * 2 ** C * V`` for each text and line.

    Args:
      engine: with rule "token" or "block", which draw; the shared-noise rule is tested by equality.
      params: ``{"target": ..., "draft": ...}``.
      prompt: token ids.
      new_tokens: length of a text that no stop token ends.
      temperature: of draft and target.
      top_k: of draft and target.
      top_p: of draft and target.
      stop_ids: tokens that end a text.
      batch: rows a call of the engine.
      seed: chooses which of the rows with equal text goes on.

    Returns:
      The probability of every emitted text, accumulated in float64 from weights in float32; the sum is
      1 if the engine is right about its own draws.

    Raises:
      ValueError: if the rule draws nothing that could be enumerated.
    """
    if engine.rule == "match":
        raise ValueError("the shared-noise rule draws nothing: compare its text with Autoregressive's")
    sampling = Sampling.create(1, temperature, top_k, top_p)
    noise = _noise(np.zeros((1, _ENTRIES), np.int32))
    slots = len(prompt) + new_tokens + engine.slack
    first = start(
        engine, params, [prompt], [new_tokens], sampling=sampling, noise=noise, stop_ids=stop_ids, slots=slots
    )
    parents, weights = jax.tree.map(np.asarray, first), np.ones(1)
    law, chance = collections.defaultdict(float), np.random.default_rng(seed)
    while len(weights):
        children, weights = _round(engine, params, parents, weights, batch)
        alive = children.status == RUNNING
        for row in np.flatnonzero(~alive):
            law[_text(children, row)[len(prompt) :]] += weights[row]
        parents, weights = _join(children, weights, np.flatnonzero(alive), chance)
    return dict(law)


def _noise(script: np.ndarray) -> _RecordingNoise:
    return _RecordingNoise(
        script=jnp.asarray(script),
        weight=jnp.ones(len(script), jnp.float32),
        cursor=jnp.int32(0),
        arity=jnp.ones(script.shape[1], jnp.int32),
    )


def _rows(state: State, rows: np.ndarray) -> State:
    """The state of some rows; counters of the whole batch stay."""
    return jax.tree.map(lambda leaf: leaf[rows] if np.ndim(leaf) else leaf, state.replace(noise=None))


def _text(state: State, row: int) -> tuple[int, ...]:
    return tuple(state.text[row, : state.length[row]].tolist())


def _round(engine, params, parents: State, weights: np.ndarray, batch: int) -> tuple[State, np.ndarray]:
    """One round of every parent under every script; rows of weight zero are left out."""
    parts, new_weights, done = [], [], 0
    while done < len(weights):
        state, chance, origin = _all_scripts(engine, params, parents, done, batch)
        alive = np.flatnonzero(chance)
        parts.append(_rows(state, alive))
        new_weights.append(weights[origin[alive]] * chance[alive])
        done = origin[-1] + 1
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves) if np.ndim(leaves[0]) else leaves[0], *parts)
    return joined, np.concatenate(new_weights)


def _all_scripts(engine, params, parents: State, first: int, batch: int):
    """All scripts of as many parents from ``first`` on as a batch holds: rows, probabilities, parents."""
    silence = np.zeros((1, _ENTRIES), np.int32)
    _, _, arity = _call(engine, params, parents, np.array([first]), silence, batch)
    while True:
        scripts = np.array(list(itertools.product(*map(range, arity))), np.int32)
        if len(scripts) > batch:
            raise ValueError(f"a round has {len(scripts)} scripts, more than the {batch} rows of a batch")
        used = np.arange(first, min(first + batch // len(scripts), len(parents.status)))
        origin, script = np.repeat(used, len(scripts)), np.tile(scripts, (len(used), 1))
        state, chance, found = _call(engine, params, parents, origin, script, batch)
        if np.all(found <= arity):
            # An entry that no draw took makes equal rows, as many as the outcomes it was given.
            return state, chance / np.prod(arity[found == 1]), origin
        arity = np.maximum(found, arity)


def _call(engine, params, parents: State, origin: np.ndarray, scripts: np.ndarray, batch: int):
    """Runs one round of the rows ``origin`` of the parents, filled up to a whole batch."""
    filler = batch - len(origin)
    state = jax.tree.map(jnp.asarray, _rows(parents, np.pad(origin, (0, filler), mode="edge")))
    state = state.replace(noise=_noise(np.pad(scripts, ((0, filler), (0, 0)), mode="edge")))
    state = jax.tree.map(np.asarray, run(engine, params, state, jnp.int32(1)))
    rows = len(origin)
    return _rows(state, np.arange(rows)), state.noise.weight[:rows].astype(np.float64), state.noise.arity


def _join(state: State, weights: np.ndarray, rows: np.ndarray, chance) -> tuple[State, np.ndarray]:
    """Joins rows that differ in nothing that counts; a random one of them goes on."""
    chosen, total = {}, collections.defaultdict(float)
    for row in chance.permutation(rows):
        held = () if state.draft is None else (int(state.draft.length[row]),)
        if state.line is not None:
            drawn = state.line.drawn.tokens[row, : state.line.length[row]]
            held += (int(state.line.trunk[row]), *drawn.tolist())
        key = (int(state.length[row]), _text(state, row), int(state.target.length[row]), *held)
        chosen.setdefault(key, row)
        total[key] += weights[row]
    chosen = dict(sorted(chosen.items()))  # rows of one length draw equally often
    kept = np.array(list(chosen.values()), np.int64)
    return _rows(state, kept), np.array([total[key] for key in chosen])
