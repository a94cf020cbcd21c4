"""The end of a round: its tokens become text, lengths move, rows end."""

import jax
import jax.numpy as jnp

from sbjax import scores
from sbjax.checking import Checked
from sbjax.engine import INVALID, LENGTH, RUNNING, STOP, State
from sbjax.indexing import at, put, span
from sbjax.verification import Outcome


def commit(state: State, drafted: jax.Array, outcome: Outcome, checked: Checked) -> tuple[State, jax.Array]:
    """Writes the accepted tokens and the one behind them.

    Args:
      state: the run, its caches as the forwards left them; the target's is None if it is elsewhere.
      drafted: ``[B, T - 1]`` int32, the trunk.
      outcome: what was decided.
      checked: what the target said about the ``T`` positions.

    Returns:
      The run with its text, lengths, status, target cache, hash and log-probabilities moved, and how many
      tokens each row emitted ``[B]`` int32.
    """
    index = span(jnp.zeros(1, jnp.int32), drafted.shape[1] + 1)
    padded = jnp.pad(drafted, ((0, 0), (0, 1)))
    block = jnp.where(index < outcome.accepted[:, None], padded, outcome.token[:, None])
    emitted, status = _emitted(state, outcome, block, checked.invalid)
    places = jnp.where(index < emitted[:, None], state.length[:, None] + index, state.text.shape[1])
    length = state.length + emitted
    return state.replace(
        text=put(state.text, places, block),
        length=length,
        status=status,
        text_hash=_next_hash(state, block, emitted),
        target=None if state.target is None else state.target.with_length(length - 1),
        log_probs=_log_probs(state, places, block, checked),
    ), emitted


def _emitted(state: State, outcome: Outcome, block: jax.Array, invalid: jax.Array):
    """How many tokens of the block ``[B, T]`` become text, and the status after it.

    The first stop token ends the text and is part of it; the limit is never passed; a token that
    would come from an unusable row ``invalid [B, T]`` of the target is not emitted.
    """
    index = jnp.arange(block.shape[1], dtype=jnp.int32)[None]
    stops = jnp.any(block[..., None] == state.stop_ids[:, None], -1)
    never = jnp.int32(block.shape[1] + 1)
    stop = jnp.where(stops, index, never).min(1) + 1
    broken = jnp.where(invalid & (index <= outcome.accepted[:, None]), index, never).min(1)
    left = state.limit - state.length
    count = jnp.minimum(jnp.minimum(outcome.accepted + 1, left), jnp.minimum(stop, broken))
    ended = jnp.where(
        count == stop,
        STOP,
        jnp.where(count == left, LENGTH, jnp.where(count == broken, INVALID, RUNNING)),
    )
    count = jnp.where(state.alive, count, 0)
    return count, jnp.where(state.alive, ended, state.status).astype(jnp.int32)


def _next_hash(state: State, block: jax.Array, emitted: jax.Array) -> jax.Array | None:
    """The hash of the text with the emitted tokens behind it."""
    if state.text_hash is None:
        return None
    hashes = state.noise.extend(state.text_hash, block)
    return at(hashes, emitted)


def _log_probs(state: State, places: jax.Array, block: jax.Array, checked: Checked):
    """Under the shared-noise rule what is emitted are the target's picks, whose figures are at hand."""
    if state.log_probs is None:
        return None
    if checked.log_probs is not None:
        return put(state.log_probs, places, checked.log_probs)
    return put(state.log_probs, places, scores.log_probability(checked.logits, block))
