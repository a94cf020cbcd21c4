"""What a Hugging Face folder consists of: its config, the files beside the weights, the files of weights."""

import pathlib
import re
import shutil
from typing import Any

from sbjax.checkpoints.errors import CheckpointError, some
from sbjax.json_file import read_json

CONFIG = "config.json"

SIDE_FILES = (
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
)
"""Files that go along with the weights, those that exist."""

_PART = re.compile(r"(.+)-(\d+)-of-(\d+)(\.\w+)")
# Formats and extras that lie beside weights, or in their place, and are not read.
_OTHER = {
    "adapter": "an adapter without its base model; merge it into the base model first",
    ".gguf": "GGUF weights are not supported; take the checkpoint they were made from",
    ".h5": "TensorFlow weights are not supported; take a version with safetensors files",
    ".msgpack": "Flax weights are not supported; take a version with safetensors files",
    ".pth": "the original release's format is not supported; take the Hugging Face version",
    "consolidated": "the original release's format is not supported; take the Hugging Face version",
}


def read_config(folder: pathlib.Path) -> dict[str, Any]:
    """Reads ``config.json``.

    Raises:
      CheckpointError: it is missing or damaged.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{folder}: not a checkpoint, it has no {CONFIG}")
    return _read(path)


def copy_side_files(folder: pathlib.Path, out: pathlib.Path) -> None:
    """Copies config, tokenizer and chat template, byte for byte, those that exist."""
    for name in SIDE_FILES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, out / name)


def weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Finds the files of weights, safetensors before pickles, by the order of transformers.

    ``model.safetensors``, else the files that ``model.safetensors.index.json`` names, else every other
    ``.safetensors`` file of weights; the same for ``pytorch_model*.bin``.

    Raises:
      CheckpointError: there are none, or a part is missing.
    """
    for stem, suffix in (("model", ".safetensors"), ("pytorch_model", ".bin")):
        single, index = folder / f"{stem}{suffix}", folder / f"{stem}{suffix}.index.json"
        if single.is_file():
            return [single]
        if index.is_file():
            return [folder / name for name in sorted(set(read_index(index).values()))]
        pattern = f"*{suffix}" if suffix == ".safetensors" else f"{stem}-*{suffix}"
        files = [path for path in sorted(folder.glob(pattern)) if not _other(path)]
        if files:
            _refuse_missing_parts(files)
            return files
    raise CheckpointError(_no_weights(folder))


def index_of(folder: pathlib.Path, files: list[pathlib.Path]) -> dict[str, pathlib.Path]:
    """What the folder's index says of where each weight is; empty without an index that names ``files``."""
    for index in (folder / "model.safetensors.index.json", folder / "pytorch_model.bin.index.json"):
        if index.is_file():
            named = {weight: folder / name for weight, name in read_index(index).items()}
            if set(named.values()) == set(files):
                return named
    return {}


def read_index(path: pathlib.Path) -> dict[str, str]:
    """Reads the ``weight_map`` of an index: weight to name of the file in the same folder.

    Raises:
      CheckpointError: the index is damaged, or names something outside its folder.
    """
    weight_map = _read(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: has no weight_map; it is damaged, get it again")
    for name in weight_map.values():
        if not isinstance(name, str) or pathlib.PurePath(name).name != name:
            raise CheckpointError(f"{path}: {name!r} is not the name of a file in its folder")
    return weight_map


def _read(path: pathlib.Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def _refuse_missing_parts(files: list[pathlib.Path]) -> None:
    """Files called ``-00001-of-00003`` say themselves how many there must be."""
    names = {path.name for path in files}
    for stem, number, count, suffix in filter(None, (_match(name) for name in names)):
        wanted = {f"{stem}-{part:0{len(number)}}-of-{count}{suffix}" for part in range(1, int(count) + 1)}
        if wanted - names:
            raise CheckpointError(f"{files[0].parent}: missing files of weights: {some(wanted - names)}")


def _match(name: str) -> tuple[str, ...] | None:
    found = _PART.fullmatch(name)
    return found.groups() if found else None


def _other(path: pathlib.Path) -> str | None:
    """Why a file is not one of weights that can be read, if it is not."""
    return next((why for key, why in _OTHER.items() if path.name.startswith(key) or path.suffix == key), None)


def _no_weights(folder: pathlib.Path) -> str:
    others = {path.name: _other(path) for path in sorted(folder.iterdir()) if path.is_file()}
    reason = next((f"; {name}: {why}" for name, why in others.items() if why), "")
    return f"{folder}: has no model*.safetensors or pytorch_model*.bin{reason}"
