"""Scripted outcomes of overlapped rounds: both caches stay those of the text and the line behind it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import Engine, KeyedNoise, KVCache, Sampling, run, start
from sbjax.engine import RUNNING
from sbjax.methods import PEARL, SpecBranch
from sbjax.prefill import prefill
from sbjax.testing import ScriptModel

pytestmark = pytest.mark.usefixtures("quick_compile")
VOCAB, LENGTH, G = 6, 96, 3
SLOTS = LENGTH + 3 * G + 1


class Script(ScriptModel):
    """Says its text with a confidence of 0.8, at every third position of 0.25."""

    def logits(self, params, hidden):
        """The script's rows, flatter."""
        unsure = hidden[..., 0].astype(jnp.int32) % 3 == 0
        return super().logits(params, hidden) * jnp.where(unsure, 0.05, 0.3)[..., None]


SCRIPT = Script(VOCAB, max_length=SLOTS)
RNG = np.random.default_rng(0)
SAID = RNG.integers(0, VOCAB, SLOTS).astype(np.int32)
# Wrong at a third of the positions. The alternatives of a scripted row are the smallest other ids.
GUESSED = np.where(RNG.random(SLOTS) < 0.35, (SAID + RNG.integers(1, VOCAB, SLOTS)) % VOCAB, SAID).astype(
    np.int32
)
PARAMS = {"target": {"script": jnp.asarray(SAID)}, "draft": {"script": jnp.asarray(GUESSED)}}
METHODS = {
    "PEARL": PEARL(G),
    "point": SpecBranch(G, branches=6, hedge="point"),
    "outcomes": SpecBranch(G, branches=4),
    "trimmed": SpecBranch(G, branches=3, epsilon=0.5),
    "short head start": SpecBranch(G, branches=3, epsilon=0.5, head_start=1),
}


def begin(engine: Engine, rows: int):
    noise = KeyedNoise.create(jnp.zeros(rows, jnp.uint32), jnp.arange(rows, dtype=jnp.uint32))
    prompts = [SAID[: 1 + 2 * row].tolist() for row in range(rows)]
    limits = [LENGTH - len(prompt) for prompt in prompts]
    return start(engine, PARAMS, prompts, limits, sampling=Sampling.create(rows), noise=noise, slots=SLOTS)


def check_cache(params, cache: KVCache, text, filled) -> None:
    """A cache holds what a fresh prefill of the text would, as far as it is filled."""
    fresh = KVCache.create(SCRIPT.cache_spec, len(text), SLOTS)
    fresh = prefill(SCRIPT, params, fresh, jnp.asarray(text), jnp.asarray(filled + 1), chunk=32)
    for row, n in enumerate(filled):
        for found, wanted in ((cache.keys, fresh.keys), (cache.values, fresh.values)):
            np.testing.assert_array_equal(found[0][row, :, :n], wanted[0][row, :, :n], err_msg=f"row {row}")


@pytest.mark.parametrize("name", METHODS)
def test_caches_are_those_of_a_fresh_prefill_after_every_outcome(name):
    method = METHODS[name]
    engine, rows = Engine(SCRIPT, SCRIPT, method, VOCAB), 4
    state, seen = begin(engine, rows), set()
    while np.any(np.asarray(state.status) == RUNNING):
        before = jax.tree.map(np.asarray, state.replace(noise=None))
        state = run(engine, PARAMS, state, jnp.int32(1))
        after = jax.tree.map(np.asarray, state.replace(noise=None))
        alive = after.status == RUNNING
        text, length = after.text.copy(), after.length
        for row in range(rows):
            np.testing.assert_array_equal(text[row, : length[row]], SAID[: length[row]])
            text[row, length[row] : length[row] + after.line.length[row]] = after.line.drawn.tokens[
                row, : after.line.length[row]
            ]
            gained = {
                name: getattr(after.statistics, name)[row] - getattr(before.statistics, name)[row]
                for name in ("hits_main", "hits_hedge", "misses")
            }
            if alive[row]:
                accepted = length[row] - before.length[row] - 1
                kind = next(name for name, gain in gained.items() if gain)
                behind = accepted == before.line.trunk[row]
                seen.add((kind, int(accepted), bool(behind), bool(before.line.length[row] > 0)))
        filled = np.where(alive, length + after.line.length - 1, 1)
        np.testing.assert_array_equal(np.where(alive, after.draft.length, 1), filled)
        np.testing.assert_array_equal(after.target.length, length - 1)
        check_cache(PARAMS["draft"], after.draft, text, filled)
        check_cache(PARAMS["target"], after.target, text, length - 1)
        assert (after.line.trunk <= np.maximum(after.line.length - 1, 0)).all()
    kinds = {kind for kind, *_ in seen}
    assert kinds == {"hits_main", "misses"} | ({"hits_hedge"} if method.branches > 1 else set())
    # Outcomes at every place of the trunk, with and without a line.
    assert {n for _, n, _, lined in seen if lined} >= set(range(G))
    assert {lined for *_, lined in seen} == {True, False}
    if method.branches > 1:
        hedged = {(behind, lined) for kind, _, behind, lined in seen if kind == "hits_hedge"}
        wanted = {(True, True), (True, False)} | ({(False, True)} if name == "outcomes" else set())
        assert hedged >= wanted
