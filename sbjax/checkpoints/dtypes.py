"""Floating-point dtypes of weights by name, and casts that lose nothing unnoticed."""

from typing import Literal

import ml_dtypes
import numpy as np

from sbjax.checkpoints.errors import CheckpointError

Stored = Literal["keep", "float32", "bfloat16", "float16"]
"""The dtype choice of a conversion; "keep" leaves every weight as it is."""

_FLOATS: dict[str, np.dtype] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "float64": np.dtype(np.float64),
}
_STORABLE = ("float32", "bfloat16", "float16")


def is_float(name: str) -> bool:
    """Whether ``name`` is a dtype that unquantised weights have."""
    return name in _FLOATS


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype of that name, bfloat16 included."""
    return _FLOATS[name]


def stored_dtype(source: str, choice: str, weight: str) -> str:
    """The dtype in which a conversion stores a weight.

    Args:
      source: dtype in the source.
      choice: see ``Stored``.
      weight: name for the message.

    Raises:
      CheckpointError: for an unknown choice, and for "keep" with a dtype that JAX does not compute in.
    """
    if choice not in ("keep", *_STORABLE):
        raise CheckpointError(f"dtype {choice!r} is not supported, use keep, {', '.join(_STORABLE)}")
    if choice == "keep" and source not in _STORABLE:
        raise CheckpointError(f"{weight} is {source}, which cannot be kept; choose the dtype float32")
    return source if choice == "keep" else choice


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide``, so that a cast there and back is exact."""
    return wide in (narrow, "float64") or (wide == "float32" and narrow in ("bfloat16", "float16"))


def cast(array: np.ndarray, dtype: str, weight: str) -> np.ndarray:
    """Casts a weight, or returns it as it is where it has the dtype already.

    Raises:
      CheckpointError: a finite value is too large for ``dtype``.
    """
    target = numpy_dtype(dtype)
    if array.dtype == target:
        return array
    with np.errstate(over="ignore"):
        result = array.astype(target)
    if not holds(dtype, array.dtype.name) and (np.isinf(result) & np.isfinite(array)).any():
        raise CheckpointError(f"{weight} has values that {dtype} cannot hold; choose a wider dtype")
    return result
