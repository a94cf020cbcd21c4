"""From rows of logits to the target's picks: the specification, in plain jax.numpy.

A score is ``logit + temperature * noise`` over the tokens that top-k and top-p leave, a pick is its argmax
(the Gumbel-max trick), so at temperature 0 picks are greedy and otherwise exact samples. The noise of a
position is ``jax.random.gumbel`` of its key: a pick depends on the key and on nothing else.
Order of the cuts, as in transformers: temperature, then top-k, then top-p over what top-k left; ties
with the last kept token are kept. Where they lie the best few tokens nearly always tell; otherwise a
bisection over the float's bits does. Both are exact, and neither sorts the vocabulary.

Axes: ``B`` rows, ``T`` positions, ``V`` vocabulary.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LOWEST = np.int32(np.array(-np.inf, np.float32).view(np.int32) ^ 0x7FFFFFFF)
"""The key of minus infinity, see ``order``."""

BEST = 256
"""Tokens that are looked at first: more than most requests keep."""


class Picked(NamedTuple):
    """What is left of rows of logits.

    Attributes:
      token: ``[B, T]`` int32, the pick; of an invalid row any token.
      score: ``[B, T]`` float32, its score, by which the picks of vocabulary shards are compared.
      invalid: ``[B, T]`` bool, whether a row holds NaN, plus infinity, or nothing finite.
      log_prob: ``[B, T]`` float32, of the pick under the model itself (temperature 1, nothing cut); None
        if it was not asked for.
    """

    token: jax.Array
    score: jax.Array
    invalid: jax.Array
    log_prob: jax.Array | None


def picks(
    logits: jax.Array,
    keys: jax.Array,
    temperature: jax.Array,
    top_k: jax.Array,
    top_p: jax.Array,
    *,
    noise: jax.Array | None = None,
    log_probs: bool = False,
) -> Picked:
    """Picks a token for every row of logits.

    Args:
      logits: ``[B, T, V]`` float32.
      keys: ``[B, T, 2]`` uint32, threefry keys of the positions (``jax.random.key_data``).
      temperature: ``[B]`` float32, 0 is greedy.
      top_k: ``[B]`` int32, 0 keeps every token.
      top_p: ``[B]`` float32, 1 keeps every token.
      noise: ``[B, T, V]`` float32, what ``gumbel`` makes of the keys, where it is at hand.
      log_probs: whether to return log-probabilities.
    """
    if noise is None:
        noise = gumbel(keys, logits.shape[-1], temperature)
    scores = score(logits, noise, temperature, top_k, top_p)
    token = pick(scores)
    best = jnp.take_along_axis(scores, token[..., None], -1)[..., 0]
    return Picked(token, best, invalid(logits), log_probability(logits, token) if log_probs else None)


def gumbel(keys: jax.Array, vocab_size: int, temperature: jax.Array) -> jax.Array:
    """The noise ``[B, T, V]`` float32 of keys ``[B, T, 2]``; not even drawn if every row is greedy."""

    def one(key):
        key = jax.random.wrap_key_data(key, impl="threefry2x32")
        return jax.random.gumbel(key, (vocab_size,), jnp.float32)

    return jax.lax.cond(
        jnp.any(temperature > 0),
        lambda: jax.vmap(jax.vmap(one))(keys),
        lambda: jnp.zeros((*keys.shape[:2], vocab_size), jnp.float32),
    )


def score(logits, noise, temperature, top_k, top_p) -> jax.Array:
    """Scores ``[B, T, V]`` of logits ``[B, T, V]`` under the shared noise ``[B, T, V]``."""
    return cut(logits, temperature, top_k, top_p) + temperature[:, None, None] * noise


def cut(logits: jax.Array, temperature: jax.Array, top_k: jax.Array, top_p: jax.Array) -> jax.Array:
    """Sets the logits ``[B, T, V]`` that top-k and top-p exclude to minus infinity.

    Costs nothing when no row asks for it. Rows at temperature 0 are left alone: their pick survives
    every cut.
    """
    wanted = cuts(temperature, top_k, top_p, logits.shape[-1])

    def run(logits):
        lowest = _lowest_kept(logits, wanted, temperature, top_k, top_p)
        kept = order(_tempered(logits, temperature[:, None, None])) >= lowest[..., None]
        return jnp.where(kept | ~wanted[:, None, None], logits, -jnp.inf)

    return jax.lax.cond(jnp.any(wanted), run, lambda logits: logits, logits)


def _lowest_kept(logits, wanted, temperature, top_k, top_p) -> jax.Array:
    """The keys ``[B, T]`` of the lowest tokens that stay.

    Nearly always the best few tokens tell; where they do not, the whole row is searched.
    """
    settings = (temperature, top_k, top_p)
    lowest, sure = _by_row(_among_best)(logits, *settings)
    return jax.lax.cond(
        jnp.all(sure | ~wanted[:, None]),
        lambda: lowest,
        lambda: jnp.where(sure, lowest, _by_row(_searched)(logits, *settings)),
    )


def _by_row(function):
    """Lifts a function of one row of logits and its settings to ``[B, T, V]`` and ``[B]``."""
    return jax.vmap(jax.vmap(function, (0, None, None, None)))


def cuts(temperature: jax.Array, top_k: jax.Array, top_p: jax.Array, vocab_size: int) -> jax.Array:
    """``[B]`` bool: the rows of which something may be cut."""
    return (temperature > 0) & (((top_k > 0) & (top_k < vocab_size)) | (top_p < 1))


def _tempered(logits, temperature) -> jax.Array:
    """Relative to the best of the row, so that no key is above 0."""
    return (logits - logits.max(-1, keepdims=True)) / jnp.where(temperature > 0, temperature, 1)


def _among_best(logits, temperature, top_k, top_p) -> tuple[jax.Array, jax.Array]:
    """The key of the lowest token of a row ``[V]`` that stays, and whether the best tokens could tell."""
    tempered = _tempered(logits, temperature)
    best = jax.lax.top_k(tempered, min(BEST, logits.shape[0]))[0]
    keys, mass, whole = order(best), jnp.exp(best), best.shape[0] == logits.shape[0]
    counted = (top_k > 0) & (top_k < logits.shape[0])
    by_count = jnp.where(counted, keys[jnp.clip(top_k - 1, 0, best.shape[0] - 1)], LOWEST)
    total = jnp.sum(jnp.where(order(tempered) >= by_count, jnp.exp(tempered), 0))
    # The mass above a token: of all before the first that is as good.
    first = jnp.searchsorted(-keys, -keys)
    above = (jnp.cumsum(mass) - mass)[first]
    inside = jnp.sum(above < top_p * total)
    by_mass = jnp.where(top_p < 1, keys[jnp.maximum(inside - 1, 0)], LOWEST)
    found = (~counted | (top_k <= best.shape[0])) & ((top_p >= 1) | (above[-1] >= top_p * total))
    return jnp.maximum(by_count, by_mass), found | whole


def _searched(logits, temperature, top_k, top_p) -> jax.Array:
    """The key of the lowest token of a row ``[V]`` that stays, by bisection."""
    tempered = _tempered(logits, temperature)
    mass, keys = jnp.exp(tempered), order(tempered)
    count = jnp.where(top_k > 0, top_k, logits.shape[0])
    # The k-th largest value is the largest threshold that k tokens reach.
    lowest = jnp.int32(LOWEST)
    by_count = largest(lowest, lambda t: jnp.sum(keys >= t) >= count)
    total = jnp.sum(jnp.where(keys >= by_count, mass, 0))
    # A token is in the nucleus if the tokens above it hold less than top_p: the smallest such value is
    # one past the largest threshold above which the mass still reaches top_p.
    outside = largest(lowest, lambda t: jnp.sum(jnp.where(keys > t, mass, 0)) >= top_p * total)
    # A share so small that it rounds to nothing still keeps the best token, whose key is 0.
    by_mass = jnp.where(top_p < 1, jnp.minimum(outside + 1, 0), LOWEST)
    return jnp.maximum(by_count, by_mass)


def order(x: jax.Array) -> jax.Array:
    """Maps floats to int32 of the same order; minus zero and zero are one."""
    bits = jax.lax.bitcast_convert_type(jnp.where(x == 0, jnp.float32(0), x), jnp.int32)
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def largest(lowest: jax.Array, holds: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """The largest key <= 0 for which ``holds``, else one less than the lowest, by 31 halvings.

    Args:
      lowest: int32, ``LOWEST`` in any shape.
      holds: from keys to whether they are low enough: true up to some key, false above (values are relative
        to the maximum, so no key is above 0).
    """

    def halve(_, bounds):
        low, high = bounds
        middle = low + jax.lax.shift_right_logical(high - low + 1, jnp.int32(1))
        good = holds(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle - 1)

    return jax.lax.fori_loop(0, 31, halve, (lowest - 1, jnp.zeros_like(lowest)))[0]


def pick(scores: jax.Array) -> jax.Array:
    """The index of the largest entry ``[...]`` int32, the smallest index if there are several.

    Written as maximum and smallest equal index, which on CPU costs a sixth of ``jnp.argmax``. A row
    with NaN gives the last index; ``invalid`` tells such rows.
    """
    vocab = scores.shape[-1]
    index = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    found = jnp.where(scores == scores.max(-1, keepdims=True), index, vocab)
    return jnp.minimum(found.min(-1), vocab - 1)


def invalid(logits: jax.Array) -> jax.Array:
    """Whether rows ``[..., V]`` hold NaN, plus infinity, or nothing finite: ``[...]`` bool.

    Written with comparisons, since XLA's maximum on CPU may pass over NaN.
    """
    return ~(jnp.all(logits < jnp.inf, -1) & jnp.any(logits > -jnp.inf, -1))


def log_probability(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Log-probability of ``tokens [B, T]`` under the model itself: temperature 1, nothing cut."""
    chosen = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)


def match(picks: jax.Array, trunk: jax.Array, length: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Accepts trunk tokens while they equal the picks.

    Args:
      picks: ``[B, T]`` int32.
      trunk: ``[B, G]`` int32, ``G >= T - 1``.
      length: ``[B]`` int32, how many trunk tokens count, at most ``T - 1``.

    Returns:
      How many stay ``[B]`` int32, and the pick behind them ``[B]`` int32.
    """
    tested = picks.shape[1] - 1
    index = jnp.arange(tested, dtype=jnp.int32)[None]
    equal = (picks[:, :-1] == trunk[:, :tested]) & (index < length[:, None])
    accepted = jnp.cumprod(equal.astype(jnp.int32), axis=1).sum(1).astype(jnp.int32)
    return accepted, jnp.take_along_axis(picks, accepted[:, None], 1)[:, 0]
