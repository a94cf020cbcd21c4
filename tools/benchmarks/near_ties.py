"""Where two runs that should give the same tokens differ: how close the two tokens' scores were."""

from typing import Any

import jax
import jax.numpy as jnp
from command_line.comparison import first_difference

import sbjax
from benchmarks.decoding import Decoder
from sbjax.engine import Engine, State
from sbjax.scores import score
from sbjax.start import start
from sbjax.verification import shared_noise


def explain(
    target: sbjax.Model,
    prompt: list[int],
    plain: list[int],
    other: list[int],
    *,
    temperature: float,
    seed: int,
    row_id: int,
    slots: int,
) -> dict[str, Any] | None:
    """Says where two continuations part.

    A gap in the order of the last bits of a float is a near-tie: forwards of different widths add up in
    different orders. Anything larger is a fault.

    Args:
      target: the model.
      prompt: its prompt.
      plain: the tokens of plain decoding.
      other: the tokens of the method.
      temperature: of both.
      seed: of both.
      row_id: of both.
      slots: cache slots.

    Returns:
      None if they are equal; else the index of the first difference, both tokens there (None where a text
      has ended) and how far apart their scores are, computed by a forward of one token.
    """
    index = first_difference(plain, other)
    if index is None:
        return None
    tokens = [each[index] if index < len(each) else None for each in (plain, other)]
    found: dict[str, Any] = {"index": index, "plain": tokens[0], "other": tokens[1]}
    if None in tokens:
        return found
    engine = Decoder(target, None, sbjax.Autoregressive()).engine
    state = start(
        engine,
        {"target": target.params},
        [prompt + plain[:index]],
        [1],
        sampling=sbjax.Sampling.create(1, temperature),
        noise=sbjax.KeyedNoise.create(jnp.full(1, seed, jnp.uint32), jnp.full(1, row_id, jnp.uint32)),
        slots=slots,
    )
    scores = _scores(engine, target.params, state)
    return {**found, "gap": float(scores[tokens[0]] - scores[tokens[1]])}


@jax.jit(static_argnames=("engine",))
def _scores(engine: Engine, params, state: State) -> jax.Array:
    """The target's scores ``[V]`` of the token after the pending one, of a state with one row."""
    last = state.length - 1
    pending = jnp.take_along_axis(state.text, last[:, None], 1)
    out = engine.target.forward(params, pending, last[:, None], state.target)
    logits = engine.target.logits(params, out.hidden)[..., : engine.vocab_size]
    noise = shared_noise(state.noise, state.length[:, None], engine.vocab_size, state.sampling)
    return score(logits, noise.rows, state.sampling)[0, 0]
