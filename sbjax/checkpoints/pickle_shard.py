"""One ``pytorch_model*.bin`` file, read by torch's weights-only loader, which runs no code."""

import pathlib
import pickle
import re
import warnings
import zipfile
from typing import Any

import numpy as np

from sbjax.checkpoints.dtypes import numpy_dtype
from sbjax.checkpoints.errors import CheckpointError
from sbjax.checkpoints.shards import Index, TensorInfo

# How torch's weights-only loader says which function or class a pickle asks for.
_CODE = re.compile(r"GLOBAL (\S+)|Unsupported (operand \S+)|but got (.+)")


class PickleShard:
    """A ``.bin`` file. See ``sbjax.checkpoints.shards.Shard``."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        values = _load(path)
        if not isinstance(values, dict):
            raise CheckpointError(f"{path}: holds a {type(values).__name__}, not weights by name")
        self._tensors = {str(name): _plain(value, str(name), path) for name, value in values.items()}
        self.tensors = {
            name: TensorInfo(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in self._tensors.items()
        }

    def read(self, name: str, index: Index | None = None) -> np.ndarray:
        """See ``Shard.read``."""
        import torch

        tensor = self._tensors[name]
        part = (tensor[index] if index else tensor).clone(memory_format=torch.contiguous_format)
        if part.dtype == torch.bfloat16:  # numpy has no bfloat16 of its own: pass the bits
            return part.view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
        return part.numpy()

    def __enter__(self) -> "PickleShard":
        return self

    def __exit__(self, *exception) -> None:
        self._tensors = {}


def _load(path: pathlib.Path) -> Any:
    try:
        import torch
    except ImportError as error:
        raise CheckpointError(
            f"{path}: reading .bin files needs torch, which is not installed; install its CPU build, or "
            "take a version of the checkpoint with safetensors files"
        ) from error
    try:
        with warnings.catch_warnings(action="ignore"):  # about pickle protocols: what cannot be read raises
            # Files older than torch 1.6 are no zip archives and cannot be mapped.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        found = _CODE.search(str(error))
        if found is None:
            raise _damaged(path, error) from error
        raise CheckpointError(
            f"{path}: refused, this pickle holds more than weights ({found[found.lastindex]}) and opening it "
            "could run code; take a version of the checkpoint with safetensors files"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError, IndexError) as error:
        raise _damaged(path, error) from error


def _damaged(path: pathlib.Path, error: Exception) -> CheckpointError:
    reason = str(error).split(". ")[0].splitlines()[0] if str(error) else type(error).__name__
    return CheckpointError(f"{path}: not a whole torch file ({reason}), truncated or damaged; get it again")


def _plain(value: Any, name: str, path: pathlib.Path) -> Any:
    import torch

    if not isinstance(value, torch.Tensor):
        raise CheckpointError(f"{path}: {name} is a {type(value).__name__}, not a tensor")
    if value.layout != torch.strided or value.is_quantized:
        raise CheckpointError(f"{path}: {name} is sparse or quantised, only plain tensors are supported")
    return value.detach()
