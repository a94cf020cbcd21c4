"""From rows of logits to the target's picks: the specification, in plain jax.numpy.

A score is ``logit + temperature * noise`` over the tokens that top-k and top-p leave, a pick is its argmax
(the Gumbel-max trick), so at temperature 0 picks are greedy and otherwise exact samples. The noise of a
position is ``jax.random.gumbel`` of its key: a pick depends on the key and on nothing else.
Order of the cuts, as in transformers: temperature, then top-k, then top-p over what top-k left; ties
with the last kept token are kept. Thresholds are searched by bisection over the float's bits: exact,
and without a sort of the vocabulary.

Axes: ``B`` rows, ``T`` positions, ``V`` vocabulary.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

LOWEST = np.int32(np.array(-np.inf, np.float32).view(np.int32) ^ 0x7FFFFFFF)
"""The key of minus infinity, see ``order``."""


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
    lifted = jax.vmap(jax.vmap(_cut_row, (0, None, None, None, None)))

    def run(x):
        return lifted(x, wanted, temperature, top_k, top_p)

    return jax.lax.cond(jnp.any(wanted), run, lambda x: x, logits)


def cuts(temperature: jax.Array, top_k: jax.Array, top_p: jax.Array, vocab_size: int) -> jax.Array:
    """``[B]`` bool: the rows of which something may be cut."""
    return (temperature > 0) & (((top_k > 0) & (top_k < vocab_size)) | (top_p < 1))


def _cut_row(logits, wanted, temperature, top_k, top_p) -> jax.Array:
    """One row of ``cut``: ``[V]``."""
    tempered = (logits - logits.max()) / jnp.where(temperature > 0, temperature, 1)
    mass = jnp.exp(tempered)
    keys = order(tempered)
    count = jnp.where(top_k > 0, top_k, logits.shape[0])
    # The k-th largest value is the largest threshold that k tokens reach.
    by_count = _largest(lambda t: jnp.sum(keys >= t) >= count)
    total = jnp.sum(jnp.where(keys >= by_count, mass, 0))
    # A token is in the nucleus if the tokens above it hold less than top_p: the smallest such value is
    # one past the largest threshold above which the mass still reaches top_p.
    outside = _largest(lambda t: jnp.sum(jnp.where(keys > t, mass, 0)) >= top_p * total)
    # A share so small that it rounds to nothing still keeps the best token, whose key is 0.
    by_mass = jnp.where(top_p < 1, jnp.minimum(outside + 1, 0), LOWEST)
    kept = (keys >= by_count) & (keys >= by_mass)
    return jnp.where(kept | ~wanted, logits, -jnp.inf)


def order(x: jax.Array) -> jax.Array:
    """Maps floats to int32 of the same order; minus zero and zero are one."""
    bits = jax.lax.bitcast_convert_type(jnp.where(x == 0, jnp.float32(0), x), jnp.int32)
    return jnp.where(bits < 0, bits ^ jnp.int32(0x7FFFFFFF), bits)


def _largest(holds) -> jax.Array:
    """The largest key <= 0 (values are relative to the maximum) for which ``holds``, else the lowest.

    ``holds`` is true up to some key and false above. 31 halvings of the range of non-positive floats.
    """

    def halve(_, bounds):
        low, high = bounds
        middle = low + (high - low + 1) // 2
        good = holds(middle)
        return jnp.where(good, middle, low), jnp.where(good, high, middle - 1)

    low, _ = jax.lax.fori_loop(0, 31, halve, (jnp.int32(LOWEST - 1), jnp.int32(0)))
    return low


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
