"""From logits to scores, picks, confidences and distributions: the only place that knows sampling.

A score is ``logit + temperature * noise`` over the tokens that top-k and top-p leave, a pick is its
argmax (the Gumbel-max trick), so at temperature 0 picks are greedy and otherwise exact samples.
Order of the cuts, as in transformers: temperature, then top-k, then top-p over what top-k left; ties
with the last kept token are kept. Thresholds are searched by bisection over the float's bits: exact,
and without a sort of the vocabulary.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

_LOWEST = np.int32(np.array(-np.inf, np.float32).view(np.int32) ^ 0x7FFFFFFF)


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Sampling:
    """Settings of a request, one entry a row; arrays, so that changing them compiles nothing.

    Attributes:
      temperature: ``[B]`` float32, 0 is greedy.
      top_k: ``[B]`` int32, 0 keeps every token.
      top_p: ``[B]`` float32, 1 keeps every token.
    """

    temperature: jax.Array
    top_k: jax.Array
    top_p: jax.Array

    @classmethod
    def create(cls, rows: int, temperature=0.0, top_k=0, top_p=1.0) -> "Sampling":
        """Checks the settings (numbers, or one a row) and lays them out.

        Raises:
          ValueError: if a setting is out of range, not finite, or has the wrong number of entries.
        """
        return cls(
            temperature=_setting("temperature", temperature, rows, np.float32, lambda x: x >= 0, ">= 0"),
            top_k=_setting("top_k", top_k, rows, np.int32, lambda x: x >= 0, ">= 0 (0 is off)"),
            top_p=_setting("top_p", top_p, rows, np.float32, lambda x: (x > 0) & (x <= 1), "in (0, 1]"),
        )


def _setting(name: str, value, rows: int, dtype, valid, rule: str) -> jax.Array:
    given = np.asarray(value)
    if given.dtype == bool or given.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be a number, got {value!r}")
    if given.shape not in ((), (rows,)):
        raise ValueError(f"{name} must be one number or one for each of {rows} rows, got shape {given.shape}")
    integer = dtype is np.int32
    with np.errstate(invalid="ignore", over="ignore"):
        whole = not integer or bool(np.all(given == np.floor(given)))
        good = whole and bool(np.all(np.isfinite(given) & valid(given)))
        # More than int32 holds is more than any vocabulary; more than float32 holds is refused.
        cast = (np.minimum(given, np.iinfo(dtype).max) if integer else given).astype(dtype)
    if not good or not np.all(np.isfinite(cast)):
        raise ValueError(f"{name} must be {'an integer ' if integer else 'finite and '}{rule}, got {value!r}")
    return jnp.asarray(np.broadcast_to(cast, (rows,)))


def cut(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """Sets the logits ``[B, T, V]`` that top-k and top-p exclude to minus infinity.

    Costs nothing when no row asks for it. Rows at temperature 0 are left alone: their pick survives
    every cut.
    """
    vocab = logits.shape[-1]
    wanted = ((sampling.top_k > 0) & (sampling.top_k < vocab)) | (sampling.top_p < 1)
    wanted = wanted & (sampling.temperature > 0)
    lifted = jax.vmap(jax.vmap(_cut_row, (0, None, None, None, None)))

    def run(x):
        return lifted(x, wanted, sampling.temperature, sampling.top_k, sampling.top_p)

    return jax.lax.cond(jnp.any(wanted), run, lambda x: x, logits)


def _cut_row(logits, wanted, temperature, top_k, top_p) -> jax.Array:
    """One row of ``cut``: ``[V]``."""
    tempered = (logits - logits.max()) / jnp.where(temperature > 0, temperature, 1)
    mass = jnp.exp(tempered)
    keys = _order(tempered)
    count = jnp.where(top_k > 0, top_k, logits.shape[0])
    # The k-th largest value is the largest threshold that k tokens reach.
    by_count = _largest(lambda t: jnp.sum(keys >= t) >= count)
    total = jnp.sum(jnp.where(keys >= by_count, mass, 0))
    # A token is in the nucleus if the tokens above it hold less than top_p: the smallest such value is
    # one past the largest threshold above which the mass still reaches top_p.
    outside = _largest(lambda t: jnp.sum(jnp.where(keys > t, mass, 0)) >= top_p * total)
    # A share so small that it rounds to nothing still keeps the best token, whose key is 0.
    by_mass = jnp.where(top_p < 1, jnp.minimum(outside + 1, 0), _LOWEST)
    kept = (keys >= by_count) & (keys >= by_mass)
    return jnp.where(kept | ~wanted, logits, -jnp.inf)


def _order(x: jax.Array) -> jax.Array:
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

    low, _ = jax.lax.fori_loop(0, 31, halve, (jnp.int32(_LOWEST - 1), jnp.int32(0)))
    return low


def score(logits: jax.Array, noise: jax.Array, sampling: Sampling) -> jax.Array:
    """Scores ``[B, T, V]`` of logits ``[B, T, V]`` under the shared noise ``[B, T, V]``."""
    return cut(logits, sampling) + sampling.temperature[:, None, None] * noise


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


def entropy(scores: jax.Array) -> jax.Array:
    """Entropy in nats of the softmax of the rows ``[..., V]``: ``[...]`` float32."""
    shifted = scores - scores.max(-1, keepdims=True)
    mass = jnp.exp(shifted)
    total = mass.sum(-1)
    return jnp.log(total) - jnp.where(mass > 0, mass * shifted, 0).sum(-1) / total


def alternatives(scores: jax.Array, token: jax.Array, count: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The best other tokens of the rows ``[..., V]``, and probabilities by the rows' softmax.

    Args:
      scores: ``[..., V]`` float32; log-probabilities work too.
      token: ``[...]`` int32.
      count: ``E``, how many others; where the vocabulary or its cut has no more, -1 with probability 0.

    Returns:
      The probability of ``token [...]``, the ids ``[..., E]`` int32, best first, and theirs.
    """
    top = scores.max(-1, keepdims=True)
    total = jnp.exp(scores - top).sum(-1, keepdims=True)
    own = jnp.take_along_axis(scores, token[..., None], -1)
    confidence = (jnp.exp(own - top) / total)[..., 0]
    index = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    others = jnp.where(index == token[..., None], -jnp.inf, scores)
    found = min(count, scores.shape[-1] - 1)
    best, ids = jax.lax.top_k(others, found) if found else (own[..., :0], token[..., None][..., :0])
    ids = jnp.where(best > -jnp.inf, ids, -1)
    pad = [(0, 0)] * (scores.ndim - 1) + [(0, count - found)]
    chances = jnp.pad(jnp.exp(best - top) / total, pad)
    return confidence, jnp.pad(ids.astype(jnp.int32), pad, constant_values=-1), chances


def distribution(logits: jax.Array, sampling: Sampling) -> jax.Array:
    """The law ``[B, T, V]`` that sampling follows; at temperature 0 all of it is on the pick."""
    kept = cut(logits, sampling)
    temperature = sampling.temperature[:, None, None]
    tempered = (kept - kept.max(-1, keepdims=True)) / jnp.where(temperature > 0, temperature, 1)
    greedy = jax.nn.one_hot(pick(logits), logits.shape[-1], dtype=jnp.float32)
    return jnp.where(temperature > 0, jax.nn.softmax(tempered, axis=-1), greedy)


def log_probability(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Log-probability of ``tokens [B, T]`` under the model itself: temperature 1, nothing cut."""
    chosen = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)
