"""The way back: from a converted checkpoint to a Hugging Face folder."""

import json
import pathlib

import huggingface_hub
import numpy as np
from safetensors.numpy import save_file

from sbjax.checkpoints import hugging_face, orbax, record
from sbjax.checkpoints.atomic_folder import atomic_folder, refuse_existing
from sbjax.checkpoints.batches import batches, nbytes
from sbjax.checkpoints.conversion import refuse_same_place
from sbjax.checkpoints.dtypes import cast, holds, numpy_dtype
from sbjax.checkpoints.errors import CheckpointError
from sbjax.checkpoints.progress import byte_progress
from sbjax.checkpoints.record import Record
from sbjax.checkpoints.shards import TensorInfo
from sbjax.models.families import from_hf_config
from sbjax.models.weight_names import Weight, weight_table


def export(
    folder: str | pathlib.Path,
    out: str | pathlib.Path,
    *,
    max_shard_size: str = "2GB",
    overwrite: bool = False,
    progress: bool = False,
) -> pathlib.Path:
    """Writes a converted checkpoint as a Hugging Face folder that transformers loads.

    Every weight gets the dtype it had in the source and is byte-equal to it, unless the conversion
    narrowed it; then it keeps the narrow dtype and ``config.json`` says so. A shard is in memory at a time.

    Args:
      folder: a converted checkpoint.
      out: the folder to be made; it appears when it is complete.
      max_shard_size: larger checkpoints are split into files of at most this size, with an index.
      overwrite: whether a checkpoint that is at ``out`` already may be replaced.
      progress: whether a progress bar is shown on stderr.

    Returns:
      ``out``.

    Raises:
      CheckpointError: ``folder`` is not a whole converted checkpoint, or ``out`` cannot be written.
    """
    folder, out = pathlib.Path(folder).expanduser(), pathlib.Path(out).expanduser()
    refuse_same_place(folder, out)
    refuse_existing(out, overwrite)
    table = weight_table(from_hf_config(hugging_face.read_config(folder)))
    content = record.read_record(folder)
    record.check_weights(folder, content, table)
    record.check_files(folder, content, checksums=True)
    infos = _exported(content, table)
    shards = _split(infos, max_shard_size)
    total = sum(nbytes(info.shape, info.dtype) for info in infos.values())
    with (
        atomic_folder(out, overwrite, total) as work,
        byte_progress(f"Exporting to {out.name}", total, progress) as advance,
    ):
        for name, weights in shards.items():
            arrays = _read(folder, content, table, {weight: infos[weight] for weight in weights})
            save_file(arrays, work / name, metadata={"format": "pt"})
            advance(sum(array.nbytes for array in arrays.values()))
            del arrays
        if len(shards) > 1:
            _write_index(work, shards, total)
        hugging_face.copy_side_files(folder, work)
        _correct_config(work, content, infos)
    return out


def _exported(content: Record, table: dict[str, Weight]) -> dict[str, TensorInfo]:
    """Dtype and shape of every tensor to be written, a redundant head included."""
    infos = {}
    for name, weight in table.items():
        source, stored = content.source_dtypes[name], content.stored_dtypes[name]
        infos[name] = TensorInfo(source if holds(stored, source) else stored, weight.shape)
    return infos | {name: infos[twin] for name, twin in content.redundant.items()}


def _split(infos: dict[str, TensorInfo], max_shard_size: str) -> dict[str, list[str]]:
    try:
        split = huggingface_hub.split_state_dict_into_shards_factory(
            infos,
            get_storage_size=lambda info: nbytes(info.shape, info.dtype),
            filename_pattern="model{suffix}.safetensors",
            max_shard_size=max_shard_size,
        )
    except ValueError as error:
        raise CheckpointError(f"max_shard_size {max_shard_size!r}: {error}") from error
    return split.filename_to_tensors


def _read(
    folder: pathlib.Path, content: Record, table: dict[str, Weight], infos: dict[str, TensorInfo]
) -> dict[str, np.ndarray]:
    """Reads the weights of a shard, cast a batch at a time so that few are held in a wider dtype."""
    arrays = {}
    twins = {name: content.redundant.get(name, name) for name in infos}
    sizes = {name: nbytes(info.shape, content.stored_dtypes[twins[name]]) for name, info in infos.items()}
    for batch in batches(infos, sizes):
        wanted = [
            orbax.Pending(weight.path, weight.shape, numpy_dtype(content.stored_dtypes[name]))
            for name, weight in ((twins[name], table[twins[name]]) for name in batch)
        ]
        found = orbax.read(folder / record.PARAMS, wanted)
        for name in batch:
            array = cast(found[table[twins[name]].path], infos[name].dtype, name)
            arrays[name] = np.ascontiguousarray(array)
    return arrays


def _write_index(work: pathlib.Path, shards: dict[str, list[str]], total: int) -> None:
    weight_map = {weight: name for name, weights in shards.items() for weight in weights}
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    text = json.dumps(index, indent=2) + "\n"
    (work / "model.safetensors.index.json").write_text(text, encoding="utf-8")


def _correct_config(work: pathlib.Path, content: Record, infos: dict[str, TensorInfo]) -> None:
    """Names the dtype in ``config.json`` where a conversion narrowed; else the file stays byte-equal."""
    sources = content.source_dtypes
    narrowed = {infos[name].dtype for name in sources if infos[name].dtype != sources[name]}
    if not narrowed:
        return
    config = hugging_face.read_config(work)
    key = "dtype" if "dtype" in config else "torch_dtype"
    config[key] = narrowed.pop()
    (work / hugging_face.CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
