"""The serial round: propose, verify, settle, commit. Every method is a policy of it."""

import jax
import jax.numpy as jnp

from sbjax import scores
from sbjax.drafting import Chain, draft_chain, no_chain
from sbjax.engine import INVALID, LENGTH, RUNNING, STOP, Engine, State
from sbjax.indexing import at, put, span
from sbjax.language_model import Params
from sbjax.verification import Outcome, verify


def serial_round(engine: Engine, params: dict[str, Params], state: State) -> State:
    """One round of all rows: drafts a trunk, checks it in one target forward, commits what stands.

    Args:
      engine: the static part.
      params: ``{"target": ..., "draft": ...}``.
      state: the run so far; finished rows stay as they are.

    Returns:
      The run after the round.
    """
    if engine.method.draft_length:
        chain = draft_chain(engine, params["draft"], state)
    else:
        chain = no_chain(engine, state)
    logits, cache = _target_rows(engine, params["target"], state, chain)
    outcome, noise = verify(engine.rule, logits, chain.trunk, state.text_hash, chain.noise, state.sampling)
    state = state.replace(target=cache, noise=noise)
    return _commit(engine, state, chain, outcome, logits)


def _target_rows(engine: Engine, params: Params, state: State, chain: Chain):
    """Runs the target on the pending token and the trunk: logits ``[B, G + 1, V]`` and its cache.

    Where the draft's context may end before the target's, a round without any trunk takes a forward
    of one token only.
    """
    trunk = chain.trunk
    width = trunk.tokens.shape[1] + 1
    if width == 1 or engine.draft.max_length >= state.text.shape[1]:
        return _forward(engine, params, state, trunk.tokens)

    def short():
        logits, cache = _forward(engine, params, state, trunk.tokens[:, :0])
        return jnp.pad(logits, ((0, 0), (0, width - 1), (0, 0))), cache

    return jax.lax.cond(
        jnp.any(trunk.length > 0), lambda: _forward(engine, params, state, trunk.tokens), short
    )


def _forward(engine: Engine, params: Params, state: State, tokens: jax.Array):
    pending = at(state.text, state.length - 1)[:, None]
    tokens = jnp.concatenate([pending, tokens], 1)
    positions = span(state.length - 1, tokens.shape[1])
    out = engine.target.forward(params, tokens, positions, state.target)
    return engine.target.logits(params, out.hidden)[..., : engine.vocab_size], out.cache


def _commit(engine: Engine, state: State, chain: Chain, outcome: Outcome, logits: jax.Array) -> State:
    """Writes the round's tokens into the text, moves all lengths, counts."""
    trunk = chain.trunk
    index = span(jnp.zeros(1, jnp.int32), trunk.tokens.shape[1] + 1)
    drafted = jnp.pad(trunk.tokens, ((0, 0), (0, 1)))
    block = jnp.where(index < outcome.accepted[:, None], drafted, outcome.token[:, None])
    emitted, status = _emitted(state, outcome, block, scores.invalid(logits))
    places = jnp.where(index < emitted[:, None], state.length[:, None] + index, state.text.shape[1])
    length = state.length + emitted
    return state.replace(
        text=put(state.text, places, block),
        length=length,
        status=status,
        text_hash=_next_hash(state, block, emitted),
        target=state.target.with_length(length - 1),
        draft=_draft_cache(state, chain, outcome),
        log_probs=_log_probs(state, places, block, logits),
        statistics=state.statistics.count(
            state.alive, trunk.length, outcome.accepted, emitted, chain.forwards
        ),
    )


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


def _draft_cache(state: State, chain: Chain, outcome: Outcome):
    """The draft keeps what it processed of the accepted text: rollback is this length."""
    if chain.cache is None:
        return None
    kept = jnp.minimum(state.length + outcome.accepted, chain.processed)
    return chain.cache.with_length(jnp.where(state.alive, kept, state.draft.length))


def _log_probs(state: State, places: jax.Array, block: jax.Array, logits: jax.Array):
    if state.log_probs is None:
        return None
    return put(state.log_probs, places, scores.log_probability(logits, block))
