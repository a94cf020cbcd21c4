"""Rotary position embeddings: the frequencies of each scaling, and the rotation itself.

Axes: ``B`` rows, ``T`` tokens, ``H`` head width. Sources: RoFormer (arXiv:2104.09864), position
interpolation (arXiv:2306.15595), YaRN (arXiv:2309.00071), Llama 3.1 (arXiv:2407.21783). The
half-split layout of Hugging Face checkpoints is used: dimension ``i`` turns with ``i + H/2``.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class LinearScaling:
    """Position interpolation: every frequency divided by ``factor``."""

    factor: float


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1: long wavelengths divided by ``factor``, short ones kept, a ramp between.

    Attributes:
      factor: divisor of the low frequencies.
      low_freq_factor: wavelengths above ``original_length / low_freq_factor`` are divided.
      high_freq_factor: wavelengths below ``original_length / high_freq_factor`` are kept.
      original_length: context length before the extension.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_length: float


@dataclasses.dataclass(frozen=True)
class YarnScaling:
    """YaRN: a ramp over the dimensions between kept and divided frequencies, and hotter scores.

    Attributes:
      factor: divisor of the low frequencies.
      original_length: context length before the extension.
      attention_factor: what cosine and sine are multiplied by.
      beta_fast: dimensions that turn more often than this over the original length are kept.
      beta_slow: dimensions that turn less often than this are divided.
      truncate: whether the ends of the ramp are rounded outwards to whole dimensions.
    """

    factor: float
    original_length: float
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclasses.dataclass(frozen=True)
class Rope:
    """One rotary embedding.

    Attributes:
      theta: base of the wavelengths.
      scaling: how the frequencies are changed, None for not at all.
    """

    theta: float
    scaling: LinearScaling | Llama3Scaling | YarnScaling | None = None


def inverse_frequencies(rope: Rope, head_dim: int) -> np.ndarray:
    """Returns ``[H/2]`` float32: radians per position of every pair of dimensions.

    Computed in float32 step by step like the models were trained: the last bit, times a position
    of many thousands, is visible in the angle.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    base = np.float32(1) / np.float32(rope.theta) ** exponents
    match rope.scaling:
        case None:
            return base
        case LinearScaling(factor):
            return base / np.float32(factor)
        case Llama3Scaling():
            return _llama3(base, rope.scaling)
        case YarnScaling():
            return _yarn(base, rope.theta, head_dim, rope.scaling)
    raise TypeError(f"unknown rope scaling {rope.scaling!r}")


def _llama3(base: np.ndarray, scaling: Llama3Scaling) -> np.ndarray:
    turns = np.float32(scaling.original_length) / (np.float32(2 * math.pi) / base)
    low, high = np.float32(scaling.low_freq_factor), np.float32(scaling.high_freq_factor)
    keep = np.clip((turns - low) / (high - low), np.float32(0), np.float32(1))
    return (1 - keep) * base / np.float32(scaling.factor) + keep * base


def _yarn(base: np.ndarray, theta: float, head_dim: int, scaling: YarnScaling) -> np.ndarray:
    def dimension(turns: float) -> float:
        wavelength = scaling.original_length / (turns * 2 * math.pi)
        return head_dim * math.log(wavelength) / (2 * math.log(theta))

    first, last = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    last = last + 0.001 if first == last else last  # a step instead of a division by zero
    index = np.arange(head_dim // 2, dtype=np.float32)
    divided = np.clip((index - np.float32(first)) / np.float32(last - first), np.float32(0), np.float32(1))
    return base / np.float32(scaling.factor) * divided + base * (1 - divided)


def angles(rope: Rope, head_dim: int, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of every position, each ``[B, T, 1, H/2]`` float32, ready for ``rotate``.

    Args:
      rope: the embedding.
      head_dim: ``H``.
      positions: ``[B, T]`` int32.
    """
    frequencies = jnp.asarray(inverse_frequencies(rope, head_dim))
    turned = positions.astype(jnp.float32)[:, :, None, None] * frequencies[None, None, None]
    factor = rope.scaling.attention_factor if isinstance(rope.scaling, YarnScaling) else 1.0
    return jnp.cos(turned) * factor, jnp.sin(turned) * factor


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotates ``x [B, T, heads, H]`` by the angles ``[B, T, 1, H/2]``, in float32.

    Returns:
      ``[B, T, heads, H]`` in the dtype of ``x``.
    """
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)
