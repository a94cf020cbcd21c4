"""Orbax, the only place that touches it: parameters written piece by piece, read whole or in part.

Written through ``orbax.checkpoint.experimental.v1``, whose ``partial`` appends to a checkpoint, so a
conversion never holds a model. Arrays are stored in chunks of a few MiB: with the default, a chunk is
an array, and a host that needs a quarter of it reads everything.
"""

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from orbax.checkpoint import v1 as ocp

from sbjax.checkpoints.errors import CheckpointError
from sbjax.checkpoints.tree import leaf_at, nest

_CHUNK_BYTES = 4 << 20


@contextlib.contextmanager
def _context(partial_load: bool = False) -> Iterator[None]:
    context = ocp.Context()
    context.array.saving.storage_options.chunk_byte_size = _CHUNK_BYTES
    # Weights hardly compress, and reading them would wait for the decompression.
    context.array.saving.use_compression = False
    context.pytree.loading.partial_load = partial_load
    with context:
        yield


def append(path: pathlib.Path, leaves: Mapping[tuple[str, ...], np.ndarray]) -> None:
    """Writes more parameters to an unfinished checkpoint.

    Args:
      path: the checkpoint's folder; it appears when ``finish`` is called.
      leaves: arrays by their paths in the nested dict of parameters; none of them is written yet.
    """
    with _context():
        ocp.partial.save(path.absolute(), nest(leaves))


def finish(path: pathlib.Path) -> None:
    """Turns what ``append`` wrote into a checkpoint."""
    with _context():
        ocp.partial.finalize(path.absolute())


def restore(path: pathlib.Path, abstract: Any) -> Any:
    """Reads all parameters; every device only reads its own part.

    Args:
      path: the checkpoint's folder.
      abstract: nested dict of ``jax.ShapeDtypeStruct`` with shardings; values are cast to its dtypes.

    Raises:
      CheckpointError: the checkpoint is damaged or holds other parameters.
    """
    return _load(path, abstract, partial=False)


def read(path: pathlib.Path, leaves: Mapping[tuple[str, ...], tuple[tuple[int, ...], np.dtype]]) -> dict:
    """Reads some parameters into host memory.

    Args:
      path: the checkpoint's folder.
      leaves: shape and dtype of each parameter that is wanted, by path.

    Returns:
      The arrays by path.

    Raises:
      CheckpointError: the checkpoint is damaged or does not hold these parameters.
    """
    # An array without memory of its own stands for its shape and dtype.
    wanted = {leaf: np.broadcast_to(np.zeros((), dtype), shape) for leaf, (shape, dtype) in leaves.items()}
    tree = _load(path, nest(wanted), partial=True)
    return {leaf: leaf_at(tree, leaf) for leaf in leaves}


def _load(path: pathlib.Path, abstract: Any, partial: bool) -> Any:
    try:
        with _context(partial_load=partial):
            return ocp.load(path.absolute(), abstract)
    except Exception as error:  # Orbax and TensorStore raise bare Exceptions for damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{path}: damaged or incomplete, Orbax cannot read it: {reason}") from error
