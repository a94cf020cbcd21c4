"""From a Hugging Face checkpoint to a converted one, a few weights at a time."""

import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from sbjax.checkpoints import hugging_face, orbax, record
from sbjax.checkpoints.atomic_folder import atomic_folder, refuse_existing
from sbjax.checkpoints.batches import BATCH_BYTES, batches, nbytes
from sbjax.checkpoints.dtypes import cast, numpy_dtype, stored_dtype
from sbjax.checkpoints.errors import CheckpointError
from sbjax.checkpoints.hub import resolve
from sbjax.checkpoints.inventory import Inventory, take_inventory
from sbjax.checkpoints.progress import byte_progress
from sbjax.checkpoints.shards import Shard, open_shard
from sbjax.checkpoints.tree import Path
from sbjax.models.families import from_hf_config
from sbjax.models.weight_names import Weight, weight_table

_CAST_BYTES = 16 << 20


def convert(
    source: str | pathlib.Path,
    out: str | pathlib.Path,
    *,
    dtype: str = "keep",
    revision: str | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> pathlib.Path:
    """Converts a Hugging Face checkpoint to an Orbax one with config, tokenizer and chat template beside it.

    ``out`` appears when it is complete. In memory are at most a shard, and beside it half a shard or the
    largest parameter, whichever is more.

    Args:
      source: a folder with ``config.json`` and safetensors or ``pytorch_model*.bin`` files, or a hub id.
      out: the folder to be made.
      dtype: "keep" stores every weight as it is; "float32", "bfloat16" and "float16" cast.
      revision: branch, tag or commit, for a hub id.
      overwrite: whether a checkpoint that is at ``out`` already may be replaced.
      progress: whether a progress bar is shown on stderr.

    Returns:
      ``out``.

    Raises:
      CheckpointError: the source is not a whole checkpoint of the model that its config describes, or
        ``out`` cannot be written; the message names the file or weight.
      UnsupportedModel: the config asks for something the decoder does not compute.
    """
    folder, out = resolve(source, revision), pathlib.Path(out).expanduser()
    refuse_same_place(folder, out)
    refuse_existing(out, overwrite)
    table = weight_table(from_hf_config(hugging_face.read_config(folder)))
    inventory = open_hugging_face(folder, table)
    stored = {name: stored_dtype(info.dtype, dtype, name) for name, info in inventory.infos.items()}
    total = sum(nbytes(weight.shape, stored[name]) for name, weight in table.items())
    with (
        atomic_folder(out, overwrite, total) as work,
        byte_progress(f"Converting to {out.name}", total, progress) as advance,
    ):
        hugging_face.copy_side_files(folder, work)
        leaves = [
            orbax.Pending(weight.path, weight.shape, numpy_dtype(stored[name]))
            for name, weight in table.items()
        ]
        orbax.write(work / record.PARAMS, leaves, _stream(inventory, table, stored, advance))
        _write_record(work, inventory, stored)
    return out


def open_hugging_face(folder: pathlib.Path, table: dict[str, Weight]) -> Inventory:
    """Matches a Hugging Face folder with a model's weights.

    Raises:
      CheckpointError: see ``take_inventory``; also for a folder that is converted already.
    """
    if record.is_converted(folder):
        raise CheckpointError(f"{folder}: is converted already")
    if record.is_unfinished(folder):
        raise CheckpointError(f"{folder}: an interrupted conversion; run the conversion again")
    files = hugging_face.weight_files(folder)
    return take_inventory(files, table, hugging_face.index_of(folder, files))


def refuse_same_place(folder: pathlib.Path, out: pathlib.Path) -> None:
    """Refuses to write over, into or around what is being read.

    Raises:
      CheckpointError: one folder holds the other.
    """
    one, other = folder.resolve(), out.resolve()
    if one == other or one in other.parents or other in one.parents:
        raise CheckpointError(f"{out}: source and result must be folders apart, the source is {folder}")


def _stream(
    inventory: Inventory, table: dict[str, Weight], stored: dict[str, str], advance: Callable[[int], None]
) -> Iterator[dict[Path, np.ndarray]]:
    """Arrays by path, a batch at a time; a batch never spans files, so one file is open at a time."""
    for path, names in inventory.files.items():
        with open_shard(path) as shard:
            limit = min(BATCH_BYTES, path.stat().st_size // 2)
            sizes = {name: nbytes(table[name].shape, stored[name]) for name in names}
            for batch in batches(names, sizes, limit):
                yield {table[name].path: _read(shard, name, stored[name]) for name in batch}
                advance(sum(sizes[name] for name in batch))


def _read(shard: Shard, name: str, dtype: str) -> np.ndarray:
    """Reads a weight as ``dtype``; a cast goes block by block, so the original is never whole in memory."""
    info = shard.tensors[name]
    if info.dtype == dtype or not info.shape:
        return cast(shard.read(name), dtype, name)
    result = np.empty(info.shape, numpy_dtype(dtype))
    step = max(1, _CAST_BYTES // max(1, result[:1].nbytes))
    for start in range(0, info.shape[0], step):
        rows = slice(start, min(start + step, info.shape[0]))
        result[rows] = cast(shard.read(name, (rows,)), dtype, name)
    return result


def _write_record(work: pathlib.Path, inventory: Inventory, stored: dict[str, str]) -> None:
    record.write_record(
        work,
        record.Record(
            source_dtypes={name: info.dtype for name, info in inventory.infos.items()},
            stored_dtypes=stored,
            redundant=inventory.redundant,
            ignored=list(inventory.ignored),
        ),
    )
