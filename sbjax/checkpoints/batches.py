"""Weights a batch at a time: enough for few and large files and calls, little beside any model."""

import math
from collections.abc import Iterable, Iterator, Mapping

from sbjax.checkpoints.dtypes import numpy_dtype

BATCH_BYTES = 256 << 20


def nbytes(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of an array."""
    return math.prod(shape) * numpy_dtype(dtype).itemsize


def batches(names: Iterable[str], sizes: Mapping[str, int], limit: int = BATCH_BYTES) -> Iterator[list[str]]:
    """Cuts names into runs whose sizes add up to at most ``limit``; a larger one stands alone."""
    batch: list[str] = []
    filled = 0
    for name in names:
        if batch and filled + sizes[name] > limit:
            yield batch
            batch, filled = [], 0
        batch.append(name)
        filled += sizes[name]
    if batch:
        yield batch
