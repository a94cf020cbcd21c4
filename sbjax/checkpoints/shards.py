"""One file of weights: names, dtypes and shapes without reading values, and values part by part.

Both kinds of file are mapped into memory, so what is resident is what was read, and a file's pages
are given back when it is closed.
"""

import pathlib
from typing import NamedTuple, Protocol

import numpy as np
import safetensors

from sbjax.checkpoints.errors import CheckpointError

Index = tuple[slice, ...]

_LFS_POINTER = b"version https://git-lfs"
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}


class TensorInfo(NamedTuple):
    """What a file's header says of a tensor.

    Attributes:
      dtype: numpy's name where there is one, else the file's own.
      shape: its shape.
    """

    dtype: str
    shape: tuple[int, ...]


class Shard(Protocol):
    """An open file of weights; a context manager that closes it.

    Attributes:
      path: the file.
      tensors: every tensor in it.
    """

    path: pathlib.Path
    tensors: dict[str, TensorInfo]

    def read(self, name: str, index: Index | None = None) -> np.ndarray:
        """Reads a tensor, or the part of it that ``index`` selects, into memory of its own."""
        ...

    def __enter__(self) -> "Shard": ...

    def __exit__(self, *exception) -> None: ...


def open_shard(path: pathlib.Path) -> Shard:
    """Opens a file of weights.

    Args:
      path: a ``.safetensors`` or ``.bin`` file.

    Raises:
      CheckpointError: the file is not there, truncated, damaged, or would run code; the message names it.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file; the checkpoint is incomplete, get it again")
    with path.open("rb") as file:
        if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise CheckpointError(f"{path}: a Git LFS pointer instead of weights; run 'git lfs pull' there")
    if path.suffix == ".safetensors":
        return SafetensorsShard(path)
    # Imported here because torch is optional and slow to import.
    from sbjax.checkpoints.pickle_shard import PickleShard

    return PickleShard(path)


class SafetensorsShard:
    """A ``.safetensors`` file. See ``Shard``."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            self._file = safetensors.safe_open(path, framework="numpy")
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}
        except (safetensors.SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path}: not a whole safetensors file ({error}); it is truncated or damaged, get it again"
            ) from error
        self.tensors = {
            name: TensorInfo(_DTYPES.get(part.get_dtype(), part.get_dtype()), tuple(part.get_shape()))
            for name, part in slices.items()
        }

    def read(self, name: str, index: Index | None = None) -> np.ndarray:
        """See ``Shard.read``."""
        if not index:
            return self._file.get_tensor(name)
        return self._file.get_slice(name)[index]

    def __enter__(self) -> "SafetensorsShard":
        return self

    def __exit__(self, *exception) -> None:
        self._file.__exit__(*exception)
