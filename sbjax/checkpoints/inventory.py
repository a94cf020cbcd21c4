"""Which file has which weight, matched strictly with the weights that a model has."""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping

import numpy as np

from sbjax.checkpoints.dtypes import is_float
from sbjax.checkpoints.errors import CheckpointError, some
from sbjax.checkpoints.shards import Shard, TensorInfo, open_shard
from sbjax.models.weight_names import Weight

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"

# Old checkpoints store the rotary frequencies, which follow from the config.
_LEGACY = re.compile(r".*\brotary_emb\.inv_freq")
_QUANTISED = re.compile(
    r".*(\.qweight|\.qzeros|\.scales|\.g_idx|\.weight_scale|\.weight_scale_inv|\.input_scale|\.weight_packed"
    r"|\.SCB|\.absmax|\.quant_map|\.nested_absmax|\.weight_format|quant_state\..*)"
)
_BLOCK_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class Inventory:
    """Where a model's weights are.

    Attributes:
      files: the files, in reading order, each with the weights it has.
      infos: dtype and shape of every weight of the model.
      redundant: weights that are stored although they equal another one, by name: name of the other.
      ignored: legacy buffers that follow from the config.
    """

    files: dict[pathlib.Path, list[str]]
    infos: dict[str, TensorInfo]
    redundant: dict[str, str]
    ignored: tuple[str, ...]


def take_inventory(
    files: Iterable[pathlib.Path], table: Mapping[str, Weight], index: Mapping[str, pathlib.Path]
) -> Inventory:
    """Reads the files' headers and matches them with the model's weights.

    Args:
      files: files of weights.
      table: the model's weights by their names in the files.
      index: what the checkpoint's index says of where each weight is; may be empty.

    Raises:
      CheckpointError: unknown, missing, duplicate, misshaped or quantised weights, an index that does not
        describe its files, or a redundant output head that differs from the embedding; names them.
    """
    where, infos = _read_headers(files)
    _refuse_wrong_index(index, where)
    legacy = {name for name in where if _LEGACY.fullmatch(name) and name not in table}
    infos = {name: info for name, info in infos.items() if name not in legacy}
    _refuse_quantised(infos, where)
    redundant = _redundant_head(where, infos, table)
    _refuse_mismatch({name: infos[name] for name in infos if name not in redundant}, where, table)
    by_file: dict[pathlib.Path, list[str]] = {}
    for name in where:
        if name in table:
            by_file.setdefault(where[name], []).append(name)
    return Inventory(by_file, {name: infos[name] for name in table}, redundant, tuple(sorted(legacy)))


def _read_headers(files: Iterable[pathlib.Path]) -> tuple[dict[str, pathlib.Path], dict[str, TensorInfo]]:
    where: dict[str, pathlib.Path] = {}
    infos: dict[str, TensorInfo] = {}
    for path in files:
        with open_shard(path) as shard:
            for name, info in shard.tensors.items():
                if name in where:
                    raise CheckpointError(
                        f"{name} is in two files, {where[name]} and {path.name}: remove what does not belong"
                    )
                where[name], infos[name] = path, info
    return where, infos


def _refuse_wrong_index(index: Mapping[str, pathlib.Path], where: Mapping[str, pathlib.Path]) -> None:
    wrong = {name for name, path in index.items() if where.get(name) != path}
    if wrong:
        name = min(wrong)
        raise CheckpointError(
            f"the index says that {name} is in {index[name]}, which does not have it; {len(wrong)} of "
            f"{len(index)} entries are wrong: the files do not belong together"
        )


def _refuse_quantised(infos: Mapping[str, TensorInfo], where: Mapping[str, pathlib.Path]) -> None:
    wrong = [name for name in sorted(infos) if _QUANTISED.fullmatch(name) or not is_float(infos[name].dtype)]
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"{where[name]}: {name} ({infos[name].dtype}) and {len(wrong) - 1} more belong to quantised "
            "weights, which are not supported; take the checkpoint in its original precision"
        )


def _redundant_head(
    where: Mapping[str, pathlib.Path], infos: Mapping[str, TensorInfo], table: Mapping[str, Weight]
) -> dict[str, str]:
    """A head that is stored although it is tied: dropped where it equals the embedding, else refused."""
    if HEAD in table or HEAD not in where or EMBEDDING not in where:
        return {}
    if infos[HEAD] == infos[EMBEDDING]:
        with open_shard(where[HEAD]) as one, open_shard(where[EMBEDDING]) as other:
            if _equal(one, HEAD, other, EMBEDDING):
                return {HEAD: EMBEDDING}
    raise CheckpointError(
        f"config.json ties the output head to the embedding, but {HEAD} in {where[HEAD]} differs from "
        f"{EMBEDDING}: if the head is one of its own, set tie_word_embeddings to false in config.json"
    )


def _equal(one: Shard, name: str, other: Shard, twin: str) -> bool:
    """Compares two weights of one shape byte by byte, a few rows at a time."""
    rows, *rest = one.tensors[name].shape
    step = max(1, _BLOCK_BYTES // (8 * int(np.prod(rest))))
    blocks = [(slice(start, min(start + step, rows)),) for start in range(0, rows, step)]
    return all(one.read(name, block).tobytes() == other.read(twin, block).tobytes() for block in blocks)


def _refuse_mismatch(
    infos: Mapping[str, TensorInfo], where: Mapping[str, pathlib.Path], table: Mapping[str, Weight]
) -> None:
    problems = []
    missing, unknown = set(table) - set(infos), set(infos) - set(table)
    if missing == {HEAD}:
        problems.append(
            f"missing {HEAD}: by config.json the output head is not tied to the embedding, but no file has "
            "it; if it is tied, set tie_word_embeddings to true in config.json"
        )
    elif missing:
        problems.append(f"missing weights: {some(missing)}")
    if unknown:
        files = some({where[name].name for name in unknown}, 2)
        problems.append(f"weights that this model does not have, in {files}: {some(unknown)}")
    problems += [
        f"{name} in {where[name].name} has shape {info.shape}, config.json asks for {table[name].shape}"
        for name, info in sorted(infos.items())
        if name in table and info.shape != tuple(table[name].shape)
    ][:5]
    if problems:
        folder = next(iter(where.values())).parent if where else "the checkpoint"
        raise CheckpointError(f"{folder}: " + "; ".join(problems))
