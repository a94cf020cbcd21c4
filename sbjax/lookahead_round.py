"""The round of Lookahead: one target forward improves the window and checks n-grams of the pool.

Its tokens, in this order; a token sees the text, itself and those left of it or above it:

    pending   c(0,1) .. c(0,W-1)    row 0 of the window, a text of its own
    c(1,0)    c(1,1) .. c(1,W-1)    row r continues every column c, which sees row 0 up to c
    ..
    g(0,1) .. g(0,N-1)              every guess sees the pending token and itself
    ..

Axes: ``W`` columns, ``N`` tokens of an n-gram, ``G`` guesses; the others as in ``language_model``.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sbjax import scores
from sbjax.branch_cache import SuffixCache, adopt
from sbjax.cache import KVCache, after
from sbjax.checking import Checked, widen
from sbjax.commit import commit
from sbjax.engine import Engine, State
from sbjax.indexing import at, span
from sbjax.language_model import Params
from sbjax.methods.lookahead import Lookahead, Lookout
from sbjax.verification import Outcome, Trunk, match, shared_noise


class _Plan(NamedTuple):
    """The constant part of a forward, in numpy: where which token stands.

    Attributes:
      offset: ``[T]``, positions behind the pending token's.
      mask: ``[T, T]`` bool.
      asked: ``[R]``, the tokens behind which the target picks: the pending one, the window's last row,
        the guesses.
      noise: ``[R]``, how far behind the text those picks stand.
    """

    offset: np.ndarray
    mask: np.ndarray
    asked: np.ndarray
    noise: np.ndarray


def lookahead_round(engine: Engine, params: dict[str, Params], state: State) -> State:
    """See ``rounds.one_round``."""
    method: Lookahead = engine.method
    window, pool = _with_pending(state), state.memory.pool
    guesses, found = pool.find(window[:, 0, 0], method.guesses)
    found = jnp.where(state.alive, found, 0)
    checked, suffix, hidden = _forward(engine, params["target"], state, window, guesses, found)
    ahead = checked.picks[:, 1 : 1 + method.window]
    trunk, outcome, best, path = _best(method, state, guesses, found, checked)
    cache = _adopt(method, state, suffix, best, hidden)
    committed, emitted = commit(state.replace(target=cache), trunk.tokens, outcome, path)
    counted = state.statistics.count(
        state.alive,
        trunk.length,
        outcome.accepted,
        emitted,
        jnp.int32(0),
        checked.width,
        hedge_drafted=jnp.maximum(found - 1, 0) * trunk.length,
    )
    memory = _remember(state, window, ahead, outcome)
    return committed.replace(memory=memory, statistics=counted)


def _with_pending(state: State) -> jax.Array:
    """The window ``[B, N - 1, W]``, its first token the pending one."""
    return state.memory.window.at[:, 0, 0].set(at(state.text, state.length - 1))


def plan(method: Lookahead) -> _Plan:
    """Lays out the widest forward; narrower ones are its first tokens, and what is asked of them."""
    depth, columns, guesses = method.ngram - 1, method.window, method.guesses
    row, column = np.divmod(np.arange(depth * columns), columns)
    guess, place = np.divmod(np.arange(guesses * depth), depth)
    inside = len(row)
    mask = np.zeros((inside + len(guess),) * 2, bool)
    text = (row[None] == 0) & (column[None] <= column[:, None])
    mask[:inside, :inside] = text | ((column[None] == column[:, None]) & (row[None] <= row[:, None]))
    mask[inside:, inside:] = (guess[None] == guess[:, None]) & (place[None] <= place[:, None])
    mask[inside:, 0] = True
    last = np.arange(columns, dtype=np.int32)
    return _Plan(
        offset=np.concatenate([row + column, place + 1]).astype(np.int32),
        mask=mask,
        asked=np.concatenate([[0], inside - columns + last, inside + np.arange(len(guess))]).astype(np.int32),
        noise=np.concatenate([[0], depth - 1 + last, place + 1]).astype(np.int32),
    )


def _forward(engine: Engine, params: Params, state: State, window: jax.Array, guesses: jax.Array, found):
    """The target in the smallest width that holds all guesses found, which come first.

    Returns:
      Picks, unusable rows and log-probabilities ``[B, 1 + W + G (N - 1)]`` of what is asked, padded; the
      suffix of all tokens, padded; and something that depends on every read of the cache.
    """
    method: Lookahead = engine.method
    rows, widths = window.shape[0], engine.target_widths
    tokens = jnp.concatenate([window.reshape(rows, -1), guesses.reshape(rows, -1)], 1)
    furthest = method.ngram - 2 + max(method.window, 2)
    shared = shared_noise(state.noise, span(state.length, furthest), engine.vocab_size, state.sampling)

    def run(width: int):
        return lambda: _run(engine, params, state, tokens, shared, width)

    needed = window[0].size + jnp.max(found) * (method.ngram - 1)
    chosen = jnp.sum(needed > jnp.array(widths[:-1], jnp.int32)).astype(jnp.int32)
    checked, suffix, hidden = jax.lax.switch(chosen, [run(width) for width in widths])
    return checked._replace(width=chosen), suffix, hidden


def _run(engine: Engine, params: Params, state: State, tokens: jax.Array, shared, width: int):
    """A forward of the first ``width`` tokens; see ``_forward``."""
    layout, full, pending = plan(engine.method), tokens.shape[1], state.length - 1
    asked = layout.asked[layout.asked < width]
    noise = layout.noise[: len(asked)]
    # What lies past the target's context is never accepted: the limit is within it.
    positions = jnp.minimum(pending[:, None] + layout.offset[None, :width], engine.target.max_length - 1)
    text = SuffixCache.of_one_forward(state.target, pending)
    mask = jnp.asarray(layout.mask[:width, :width])
    out = engine.target.forward(params, tokens[:, :width], positions, text, mask)
    logits = engine.target.logits(params, out.hidden[:, asked])
    shared = jax.tree.map(lambda leaf: leaf[:, noise], shared)
    options = {"vocab_size": engine.vocab_size, "log_probs": engine.log_probs}
    picked = scores.picks(logits, shared, state.sampling, **options)
    said = (widen(leaf, len(layout.asked)) for leaf in (picked.token, picked.invalid, picked.log_prob))
    picks, invalid, log_probs = said
    checked = Checked(picks, None, None, invalid, log_probs, features=None, width=jnp.int32(0))
    keys, values = jax.tree.map(lambda leaf: widen(leaf, full, 2), (out.cache.keys, out.cache.values))
    return checked, out.cache.replace(prefix=None, keys=keys, values=values), out.hidden[:, :1, :1]


def _best(method: Lookahead, state: State, guesses: jax.Array, found: jax.Array, checked: Checked):
    """The guess that the target follows furthest.

    Returns:
      Its trunk, the outcome, its index ``[B]``, and what the target said behind its ``N`` tokens.
    """
    rows, room = guesses.shape[0], jnp.clip(state.limit - state.length - 1, 0, method.ngram - 1)
    index = jnp.arange(method.guesses, dtype=jnp.int32)[None]
    lengths = jnp.where(index < found[:, None], room[:, None], 0)

    def paths(leaf: jax.Array) -> jax.Array:
        """``[B, G, N]``: behind the pending token, then behind those of the guess."""
        behind = leaf[:, 1 + method.window :].reshape(rows, method.guesses, -1)
        first = jnp.broadcast_to(leaf[:, :1, None], (rows, method.guesses, 1))
        return jnp.concatenate([first, behind], 2)

    picks = paths(checked.picks)
    outcomes = jax.vmap(match, 1, 1)(picks, Trunk(guesses, lengths, None))
    best = jnp.argmax(outcomes.accepted, 1).astype(jnp.int32)
    path = checked._replace(
        picks=at(picks, best),
        invalid=at(paths(checked.invalid), best),
        log_probs=None if checked.log_probs is None else at(paths(checked.log_probs), best),
    )
    trunk = Trunk(at(guesses, best), at(lengths, best), None)
    return trunk, jax.tree.map(lambda leaf: at(leaf, best), outcomes), best, path


def _adopt(method: Lookahead, state: State, suffix: SuffixCache, best: jax.Array, hidden) -> KVCache:
    """The target's cache with the pending token and the best guess; what was refused lies behind the text."""
    depth = method.ngram - 1
    guess = span((method.window + best) * depth, depth)
    slots = jnp.concatenate([jnp.zeros_like(guess[:, :1]), guess], 1)
    return adopt(state.target, suffix, after(state.length - 1, hidden), slots)


def _remember(state: State, window: jax.Array, ahead: jax.Array, outcome: Outcome) -> Lookout:
    """The next window, moved by the emitted tokens, and the pool with one n-gram of every column."""
    columns = window.shape[2]
    chains = jnp.concatenate([window, ahead[:, None]], 1)
    pool = state.memory.pool.add(jnp.swapaxes(chains, 1, 2))
    moved = (jnp.arange(columns, dtype=jnp.int32)[None] + outcome.accepted[:, None]) % columns
    found = Lookout(window=jax.vmap(lambda rows, order: rows[:, order])(chains[:, 1:], moved), pool=pool)

    def of_running(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where(jnp.expand_dims(state.alive, tuple(range(1, new.ndim))), new, old)

    return jax.tree.map(of_running, found, state.memory)
