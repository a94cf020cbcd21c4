"""Orbax, the only place that touches it: parameters written as they come, read whole or in part.

Orbax saves a tree that is in memory. Here the leaves of the saved tree only stand for parameters, and
their handler takes the arrays from a stream, so a conversion never holds a model. Arrays are stored in
chunks of a few MiB: with the default, a chunk is an array, and a host that needs a quarter of it reads
everything.
"""

import asyncio
import contextlib
import copy
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import tensorstore
from orbax.checkpoint import type_handlers

from sbjax.checkpoints.errors import CheckpointError
from sbjax.checkpoints.tree import Path, leaf_at, nest

_CHUNK_BYTES = 4 << 20
# Every array that is written makes a new version of the index. Orbax's own context caches 100 MB of them.
_WITHOUT_CACHE = tensorstore.Context({"cache_pool#ocdbt": {"total_bytes_limit": 0}})


@dataclasses.dataclass(frozen=True)
class Pending:
    """A parameter that is not in memory yet.

    Attributes:
      path: its place in the nested dict of parameters.
      shape: its shape.
      dtype: its dtype.
    """

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype


class _StreamHandler(type_handlers.NumpyHandler):
    """Writes the arrays of a stream in the place of the ``Pending`` leaves that stand for them."""

    def __init__(self, stream: Iterator[dict[Path, np.ndarray]]):
        # Every batch is waited for, so its arrays cannot change meanwhile and need no copy.
        super().__init__(deepcopy_host_arrays=False)
        self._stream = stream
        self._commits: list[Any] = []

    async def serialize(self, values, infos, args=None):
        infos = [copy.copy(info) for info in infos]
        for info in infos:
            info.ts_context = _WITHOUT_CACHE
        slots = {value.path: slot for value, *slot in zip(values, infos, args, strict=True)}
        for batch in self._stream:
            batch_infos, batch_args = zip(*(slots.pop(path) for path in batch), strict=True)
            self._commits = await super().serialize(list(batch.values()), batch_infos, batch_args)
            for commit in self._commits:
                await asyncio.to_thread(commit.result)
            del commit
            self._commits = []
            batch.clear()  # before the next batch is made
        if slots:
            raise ValueError(f"the stream ended without {sorted(slots)[:5]}")
        return []

    def settle(self) -> None:
        """Waits until an interrupted write has ended: its threads go on, and would make its folder anew."""
        for commit in self._commits:
            with contextlib.suppress(Exception):
                commit.result()


def write(path: pathlib.Path, leaves: list[Pending], stream: Iterator[dict[Path, np.ndarray]]) -> None:
    """Writes a checkpoint as its arrays come.

    Args:
      path: the checkpoint's folder; it appears when the checkpoint is complete.
      leaves: every parameter.
      stream: batches of arrays by path, in any order. A batch is written and emptied before the next one is
        asked for, so only one is in memory.
    """
    writer = _StreamHandler(stream)
    handlers = type_handlers.create_type_handler_registry(
        (Pending, writer), (jax.Array, type_handlers.ArrayHandler())
    )
    # Weights hardly compress, and reading them would wait for the decompression.
    handler = ocp.PyTreeCheckpointHandler(
        use_zarr3=True, use_compression=False, type_handler_registry=handlers
    )
    tree = nest({leaf.path: leaf for leaf in leaves})
    chunks = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=_CHUNK_BYTES), tree)
    try:
        with ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(path.absolute(), args=ocp.args.PyTreeSave(tree, save_args=chunks))
    except BaseException:
        writer.settle()
        raise


def restore(path: pathlib.Path, abstract: Any) -> Any:
    """Reads all parameters; every device only reads its own part.

    Args:
      path: the checkpoint's folder.
      abstract: nested dict of ``jax.ShapeDtypeStruct`` with shardings; values are cast to its dtypes.

    Raises:
      CheckpointError: the checkpoint is damaged or holds other parameters.
    """
    return _restore(path, abstract, ocp.checkpoint_utils.construct_restore_args(abstract), partial=False)


def read(path: pathlib.Path, leaves: list[Pending]) -> dict[Path, np.ndarray]:
    """Reads some parameters into host memory.

    Args:
      path: the checkpoint's folder.
      leaves: the parameters that are wanted.

    Raises:
      CheckpointError: the checkpoint is damaged or does not hold these parameters.
    """
    # An array without memory of its own stands for its shape and dtype.
    wanted = nest({leaf.path: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape) for leaf in leaves})
    arguments = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray, dtype=leaf.dtype), wanted)
    tree = _restore(path, wanted, arguments, partial=True)
    return {leaf.path: leaf_at(tree, leaf.path) for leaf in leaves}


def _restore(path: pathlib.Path, item: Any, arguments: Any, partial: bool) -> Any:
    # Without a limit all arrays are in memory twice. The largest one, padded to chunks, must be below it.
    largest = max(4 * leaf.size for leaf in jax.tree.leaves(item))
    handler = ocp.PyTreeCheckpointHandler(restore_concurrent_gb=1 + int(1.1 * largest / 1e9 + 0.1))
    try:
        with ocp.Checkpointer(handler) as checkpointer:
            return checkpointer.restore(
                path.absolute(),
                args=ocp.args.PyTreeRestore(item, restore_args=arguments, partial_restore=partial),
            )
    except Exception as error:  # Orbax and TensorStore raise bare Exceptions for damaged files
        reason = str(error).split(" [tensorstore_spec")[0].splitlines()[0] if str(error) else repr(error)
        raise CheckpointError(f"{path}: damaged or incomplete, Orbax cannot read it: {reason}") from error
