"""Branches: the draft goes on, from several heads at once, while the target is still verifying.

Every branch runs the same ``G`` steps under ``vmap`` over a shared prefix. A row with a line starts each
branch on its head (the main one behind its head start). A row after a miss starts all branches on the
pending token, and the best picks of that first step become the heads.

Axes: ``C`` tokens a line can hold, ``E`` alternatives a position; the others as in ``language_model``.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from sbjax import scores
from sbjax.branch_cache import SuffixCache
from sbjax.cache import KVCache
from sbjax.drafting import usable
from sbjax.engine import Engine, State
from sbjax.indexing import at, span, take
from sbjax.language_model import Params
from sbjax.line import Drawn, Line
from sbjax.verification import choose


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Branches:
    """``K`` branches of every row; branch 0 is the main one.

    Attributes:
      live: ``[B, K]`` bool, which branches there are.
      fork: ``[B, K]`` int32, trunk tokens that a branch builds on.
      head: ``[B, K]`` int32, the first token.
      behind: ``[B, K, C]``, the tokens behind the head with their rows' figures.
      length: ``[B, K]`` int32, how many there are behind the head.
      head_law: ``[B, V]`` float32, the row that a main head was drawn from in a row without a line;
        None under the shared-noise rule.
      base: ``[B, K]`` int32, prefix slots that a branch sees.
      suffix_keys: ``L`` buffers ``[B, K, M, G, H]``, what every branch processed behind them.
      suffix_values: likewise.
    """

    live: jax.Array
    fork: jax.Array
    head: jax.Array
    behind: Drawn
    length: jax.Array
    head_law: jax.Array | None
    base: jax.Array
    suffix_keys: tuple[jax.Array, ...]
    suffix_values: tuple[jax.Array, ...]


class _Carry(NamedTuple):
    fed: jax.Array
    head: jax.Array
    live: jax.Array
    behind: Drawn
    head_law: jax.Array | None
    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    text: jax.Array | None
    noise: object


def propose(engine: Engine, params: Params, state: State, shared: jax.Array | None):
    """Drafts the branches of a round.

    Args:
      engine: the static part; its method has overlap.
      params: the draft's parameters.
      state: the run; text, line, sampling, noise and the draft's cache are looked at.
      shared: ``[B, R, V]``, noise of the positions behind the text, ``R >= C + G``; None under the other
        rules.

    Returns:
      The ``Branches`` and the noise.
    """
    line, steps = state.line, engine.method.draft_length
    live, fork, head = choose_heads(engine, line)
    base = jnp.where(line.hit[:, None], state.length[:, None] + fork, state.length[:, None] - 1)
    base = base.at[:, 0].set(state.length + line.length - 1)
    carry = _first(engine, state, live, fork, head)
    carry = jax.lax.fori_loop(
        0, steps, lambda i, carry: _step(engine, params, state, shared, base, i, carry), carry
    )
    reached = _started(line, head.shape[1]) + steps - (~line.hit).astype(jnp.int32)[:, None]
    return Branches(
        live=carry.live & reachable(engine, state)[:, None],
        fork=fork,
        head=carry.head,
        behind=carry.behind,
        length=jnp.minimum(reached, engine.method.line_length),
        head_law=carry.head_law,
        base=base,
        suffix_keys=carry.keys,
        suffix_values=carry.values,
    ), carry.noise


def reachable(engine: Engine, state: State) -> jax.Array:
    """``[B]`` bool: rows that the draft has kept up with and has context for."""
    processed = state.draft.length
    room = processed + engine.method.draft_length <= engine.draft.max_length
    return state.alive & room & (processed == state.length + state.line.length - 1)


def choose_heads(engine: Engine, line: Line) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Which branches a round has: live, fork and head, each ``[B, K]``; without a line none is live."""
    rows, extra = line.length.shape[0], engine.method.branches - 1
    values = jax.vmap(engine.method.hedge_values)(line.drawn.confidence, line.drawn.chances, line.trunk)
    ids = line.drawn.alternatives.reshape(rows, -1)
    best, index = jax.lax.top_k(jnp.where(ids < 0, 0, values.reshape(rows, -1)), extra)
    fork = jnp.concatenate([line.trunk[:, None], index.astype(jnp.int32) // max(extra, 1)], 1)
    head = jnp.concatenate([line.head[:, None], jnp.maximum(take(ids, index), 0)], 1)
    live = jnp.concatenate([line.hit[:, None], line.hit[:, None] & (best > 0)], 1)
    return live, jnp.where(line.hit[:, None], fork, 0), head


def _started(line: Line, branches: int) -> jax.Array:
    """``[B, K]`` int32: tokens behind the head at the start, the main branch's head start."""
    return jnp.pad(line.head_start[:, None], ((0, 0), (0, branches - 1)))


def _first(engine: Engine, state: State, live, fork, head) -> _Carry:
    """The loop's start. A main branch holds its head start, the others nothing."""
    line, (rows, branches) = state.line, head.shape
    width, spec = engine.method.line_length, engine.draft.cache_spec
    started = jax.tree.map(lambda leaf: take(leaf, span(line.trunk + 1, width)), line.drawn)
    behind = Drawn.create(engine, rows, branches, width)
    shape = (rows, branches, spec.kv_heads, engine.method.draft_length, spec.head_dim)
    last = at(line.drawn.tokens, jnp.maximum(line.length - 1, 0))
    pending = at(state.text, state.length - 1)
    return _Carry(
        fed=jnp.where(line.hit[:, None], head.at[:, 0].set(last), pending[:, None]),
        head=head,
        live=live,
        behind=jax.tree.map(lambda every, main: every.at[:, 0].set(main), behind, started),
        head_law=None if engine.rule == "match" else jnp.zeros((rows, engine.vocab_size), jnp.float32),
        keys=tuple(jnp.zeros(shape, spec.dtype) for _ in range(spec.layers)),
        values=tuple(jnp.zeros(shape, spec.dtype) for _ in range(spec.layers)),
        text=_hashes(engine, state, fork, head),
        noise=state.noise,
    )


def _hashes(engine: Engine, state: State, fork, head) -> jax.Array | None:
    """``[B, K]``: the hash of the text that the next drawn token of every branch follows."""
    if engine.rule == "match":
        return None
    line, branches = state.line, head.shape[1]
    along = state.noise.extend(state.text_hash, line.drawn.tokens)
    hedged = _extend(state.noise, at(along, fork), head)
    hit = hedged.at[:, 0].set(at(along, line.length))
    return jnp.where(line.hit[:, None], hit, jnp.stack([state.text_hash] * branches, 1))


def _extend(noise, text: jax.Array, tokens: jax.Array) -> jax.Array:
    """Hashes ``[B, K]`` with one token ``[B, K]`` behind each."""
    return noise.extend(text.reshape(-1), tokens.reshape(-1, 1))[:, 1].reshape(text.shape)


def _step(engine: Engine, params, state: State, shared, base, i, carry: _Carry) -> _Carry:
    """One draft step of all branches: processes the tokens at hand, draws the next."""
    line = state.line
    logits, keys, values = _forward(engine, params, state.draft, base, i, carry)
    place = base + i + 1 - state.length[:, None]
    noisy = None if shared is None else take(shared, place)
    token, rows, laws, noise = choose(engine.rule, logits, noisy, carry.text, carry.noise, state.sampling)
    new = _figures(engine, token, rows, laws)
    fresh = ~line.hit[:, None] & (i == 0)
    live, _, head = choose_heads(engine, _first_row(engine, new))
    head, live = jnp.where(fresh, head, carry.head), jnp.where(fresh, live, carry.live)
    index = _started(line, head.shape[1]) + i - (~line.hit).astype(jnp.int32)[:, None]
    index = jnp.where(index < 0, engine.method.line_length, index)
    store = jax.vmap(jax.vmap(lambda row, j, entry: row.at[j].set(entry, mode="drop")))
    fed = jnp.where(fresh, head, token)
    law = carry.head_law
    return _Carry(
        fed=fed,
        head=head,
        live=live,
        behind=jax.tree.map(lambda table, entry: store(table, index, entry), carry.behind, new),
        head_law=None if law is None else jnp.where(fresh, new.laws[:, 0], law),
        keys=keys,
        values=values,
        text=None if carry.text is None else _extend(noise, carry.text, fed),
        noise=noise,
    )


def _forward(engine: Engine, params: Params, prefix: KVCache, base, i, carry: _Carry):
    """Logits ``[B, K, V]`` and the suffixes after one token of every branch; the prefix is not mapped."""

    def branch(fed, base, keys, values):
        length = jnp.broadcast_to(i, base.shape).astype(jnp.int32)
        cache = SuffixCache(prefix=prefix, visible=base, keys=keys, values=values, length=length)
        out = engine.draft.forward(params, fed[:, None], (base + i)[:, None], cache)
        logits = engine.draft.logits(params, out.hidden)[:, 0, : engine.vocab_size]
        return logits, out.cache.keys, out.cache.values

    logits, keys, values = jax.vmap(branch, 1, 1)(carry.fed, base, carry.keys, carry.values)
    return usable(logits), keys, values


def _figures(engine: Engine, token, rows, laws) -> Drawn:
    """What is kept of the rows ``[B, K, V]``: no more than a few numbers under the shared-noise rule."""
    confidence, ids, chances = scores.alternatives(rows, token, engine.method.branches - 1)
    return Drawn(tokens=token, confidence=confidence, alternatives=ids, chances=chances, laws=laws)


def _first_row(engine: Engine, new: Drawn) -> Line:
    """The first step of a row after a miss as a line of one token: its alternatives are the hedges."""
    rows = new.tokens.shape[0]
    empty = Drawn.create(engine, rows, engine.method.line_length)
    drawn = jax.tree.map(lambda table, entry: table.at[:, 0].set(entry[:, 0]), empty, new)
    return Line(drawn=drawn, length=jnp.ones(rows, jnp.int32), trunk=jnp.zeros(rows, jnp.int32))
