"""A request's sampling settings, and what rows of logits become under them.

How a row is cut, scored and picked from is written once, in ``kernels_pallas.verify.reference``.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from kernels_pallas import verify as kernel
from kernels_pallas.verify import Picked, Verified, reference
from kernels_pallas.verify.reference import invalid, log_probability, pick

__all__ = [
    "Picked",
    "Sampling",
    "alternatives",
    "cut",
    "distribution",
    "entropy",
    "invalid",
    "log_probability",
    "pick",
    "picks",
    "score",
    "verify",
]


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
    """Sets the logits ``[B, T, V]`` that top-k and top-p exclude to minus infinity."""
    return reference.cut(logits, *_fields(sampling))


def picks(logits: jax.Array, shared, sampling: Sampling, **options) -> Picked:
    """The picks of logits ``[B, T, V]``; see ``kernels_pallas.verify.picks``.

    Args:
      logits: ``[B, T, V]`` float32.
      shared: keys ``[B, T, 2]`` and rows ``[B, T, V]`` of the positions' noise (``SharedNoise``).
      sampling: settings of the rows.
      **options: ``vocab_size``, ``log_probs``.
    """
    keys, noise = shared
    return kernel.picks(logits, keys, *_fields(sampling), noise=noise, **options)


def verify(
    logits: jax.Array, shared, sampling: Sampling, trunk: jax.Array, length: jax.Array, **options
) -> Verified:
    """The picks, and how much they confirm of ``trunk [B, T - 1]``, of which ``length [B]`` tokens count.

    The others are as of ``picks``; see ``kernels_pallas.verify.verify``.
    """
    keys, noise = shared
    return kernel.verify(logits, keys, *_fields(sampling), trunk, length, noise=noise, **options)


def _fields(sampling: Sampling) -> tuple[jax.Array, jax.Array, jax.Array]:
    return sampling.temperature, sampling.top_k, sampling.top_p


def score(logits: jax.Array, noise: jax.Array, sampling: Sampling) -> jax.Array:
    """Scores ``[B, T, V]`` of logits ``[B, T, V]`` under the shared noise ``[B, T, V]``."""
    return reference.score(logits, noise, *_fields(sampling))


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
