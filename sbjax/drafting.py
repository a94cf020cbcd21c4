"""Drafting one chain: the draft catches up with the text, then guesses token by token."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sbjax import scores
from sbjax.cache import KVCache
from sbjax.engine import Engine, State
from sbjax.indexing import span, take
from sbjax.language_model import Params
from sbjax.verification import Trunk, choose


class Chain(NamedTuple):
    """What drafting leaves behind.

    Attributes:
      trunk: the drafted tokens.
      cache: the draft's cache; its length still that of before the round.
      processed: ``[B]`` int32, slots of ``cache`` that hold the text followed by the trunk.
      noise: the source of chance.
      forwards: ``[]`` int32, how many forwards were run.
    """

    trunk: Trunk
    cache: KVCache | None
    processed: jax.Array
    noise: object
    forwards: jax.Array


class _Carry(NamedTuple):
    step: jax.Array
    length: jax.Array
    logits: jax.Array
    tokens: jax.Array
    laws: jax.Array | None
    text: jax.Array | None
    noise: object
    cache: KVCache
    forwards: jax.Array


def no_chain(state: State) -> Chain:
    """An empty trunk, for plain decoding."""
    rows = state.text.shape[0]
    trunk = Trunk(jnp.zeros((rows, 0), jnp.int32), jnp.zeros(rows, jnp.int32), None)
    return Chain(trunk, state.draft, jnp.zeros(rows, jnp.int32), state.noise, jnp.int32(0))


def draft_chain(engine: Engine, params: Params, state: State, shared: jax.Array | None) -> Chain:
    """Drafts up to ``G`` tokens a row, as far as the method, the row's limit and the draft's context go.

    A row that cannot draft has an empty trunk: its round is one of plain decoding.

    Args:
      engine: the static part.
      params: the draft's parameters.
      state: the run.
      shared: ``[B, R, V]``, noise of the positions behind the text, ``R >= G``; None under the other rules.
    """
    length = _longest(engine, state)
    drafting = length > 0
    cache, logits = jax.lax.cond(
        jnp.any(drafting),
        lambda cache: _catch_up(engine, params, state, cache),
        lambda cache: (cache, jnp.zeros((state.text.shape[0], engine.vocab_size), jnp.float32)),
        state.draft,
    )
    carry = _first(engine, state, cache, logits, length)
    carry = jax.lax.while_loop(
        lambda carry: jnp.any(carry.step < carry.length),
        lambda carry: _guess(engine, shared, state, _advance(engine, params, carry)),
        _guess(engine, shared, state, carry),
    )
    trunk = Trunk(carry.tokens, carry.length, carry.laws)
    processed = jnp.where(drafting, state.length + carry.step - 1, state.draft.length)
    cache = carry.cache.with_length(state.draft.length)
    return Chain(trunk, cache, processed, carry.noise, carry.forwards)


def usable(logits: jax.Array) -> jax.Array:
    """Draft logits ``[..., V]``; a row that cannot be used guesses uniformly."""
    return jnp.where(scores.invalid(logits)[..., None], jnp.float32(0), logits)


def _longest(engine: Engine, state: State) -> jax.Array:
    """How many tokens each row may draft: ``[B]`` int32.

    The target adds one token of its own, so a row with ``r`` tokens to go drafts at most ``r - 1``.
    The draft processes all but the last token it draws. A row it fell behind of stays without it.
    """
    left = state.limit - state.length - 1
    room = engine.draft.max_length - state.length + 1
    cap = jnp.minimum(jnp.minimum(left, room), engine.method.draft_length)
    reachable = state.alive & (state.length - state.draft.length <= 2)
    return jnp.where(reachable, jnp.maximum(cap, 0), 0).astype(jnp.int32)


def _first(engine: Engine, state: State, cache: KVCache, logits: jax.Array, length) -> _Carry:
    """The loop's start: nothing guessed, the row of scores behind the text at hand."""
    rows, g = state.text.shape[0], engine.method.draft_length
    laws = None if engine.rule == "match" else jnp.zeros((rows, g, engine.vocab_size), jnp.float32)
    return _Carry(
        step=jnp.int32(0),
        length=length,
        logits=logits,
        tokens=jnp.zeros((rows, g), jnp.int32),
        laws=laws,
        text=state.text_hash,
        noise=state.noise,
        cache=cache.with_length(state.length),
        forwards=jnp.any(length > 0).astype(jnp.int32),
    )


def _catch_up(engine: Engine, params: Params, state: State, cache: KVCache):
    """Feeds the last two tokens of the text, or the last one, whichever the draft has not seen.

    After a fully accepted trunk the draft lacks its own last token beside the pending one. A row that
    lacks one token reads a dead second one, whose slot is overwritten by the next step. (One forward of
    constant width: a choice between widths makes XLA copy the cache, and costs more than it saves.)
    """
    positions = span(cache.length, 2)
    tokens = take(state.text, positions)
    out = engine.draft.forward(params, tokens, positions, cache)
    last = jnp.clip(state.length - 1 - cache.length, 0, 1)
    hidden = take(out.hidden, last[:, None])
    return out.cache, _logits(engine, params, hidden)


def _guess(engine: Engine, shared, state: State, carry: _Carry) -> _Carry:
    """Chooses the next token from the row of scores at hand; the method may end the chain behind it."""
    step = carry.step
    row = None if shared is None else jax.lax.dynamic_index_in_dim(shared, step, 1)
    text = None if carry.text is None else carry.text[:, None]
    token, rows, law, noise = choose(
        engine.rule, carry.logits[:, None], row, text, carry.noise, state.sampling
    )
    ended = engine.method.stop(state.memory, rows[:, 0])
    return carry._replace(
        step=step + 1,
        length=jnp.where(ended, jnp.minimum(carry.length, step + 1), carry.length),
        tokens=carry.tokens.at[:, step].set(token[:, 0]),
        laws=None if law is None else carry.laws.at[:, step].set(law[:, 0]),
        text=None if text is None else noise.extend(carry.text, token)[:, 1],
        noise=noise,
    )


def _advance(engine: Engine, params: Params, carry: _Carry) -> _Carry:
    """Processes the token just chosen."""
    cache = carry.cache
    token = jax.lax.dynamic_index_in_dim(carry.tokens, carry.step - 1, 1)
    out = engine.draft.forward(params, token, cache.length[:, None], cache)
    logits = _logits(engine, params, out.hidden)
    cache = out.cache.with_length(cache.length + 1)
    return carry._replace(logits=logits, cache=cache, forwards=carry.forwards + 1)


def _logits(engine: Engine, params: Params, hidden: jax.Array) -> jax.Array:
    """Draft logits ``[B, V]`` of ``hidden [B, 1, D]``."""
    return usable(engine.draft.logits(params, hidden)[:, 0, : engine.vocab_size])
