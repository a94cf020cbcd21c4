"""``sbjax.json``, written last into a converted folder: what it was made from, and how to tell damage."""

import concurrent.futures
import dataclasses
import json
import pathlib
import zlib
from collections.abc import Iterable

from sbjax.checkpoints.errors import CheckpointError, some
from sbjax.json_file import read_json

NAME = "sbjax.json"
PARAMS = "params"

_FORMAT = 1
_BLOCK_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class Record:
    """What a converted folder says of itself.

    Attributes:
      source_dtypes: dtype of every weight in the source, by its Hugging Face name.
      stored_dtypes: dtype of every weight as it is stored here.
      redundant: weights of the source that equal another one and are not stored: name to the other's name.
      ignored: buffers of the source that follow from the config and are not stored.
      files: bytes and CRC-32 of every file of the parameters, by its path in the folder.
    """

    source_dtypes: dict[str, str]
    stored_dtypes: dict[str, str]
    redundant: dict[str, str]
    ignored: list[str]
    files: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)


def is_converted(folder: pathlib.Path) -> bool:
    """Whether a folder is a complete converted checkpoint."""
    return (folder / NAME).is_file()


def is_unfinished(folder: pathlib.Path) -> bool:
    """Whether a folder is what an interrupted conversion left behind."""
    return not is_converted(folder) and any(path.is_dir() for path in folder.glob(f"{PARAMS}*"))


def write_record(folder: pathlib.Path, record: Record) -> None:
    """Writes ``sbjax.json``; what it says of the files is taken from the folder itself."""
    files = sorted(path for path in (folder / PARAMS).rglob("*") if path.is_file())
    with concurrent.futures.ThreadPoolExecutor() as pool:
        sums = list(pool.map(_crc32, files))
    listed = {
        path.relative_to(folder).as_posix(): (path.stat().st_size, crc)
        for path, crc in zip(files, sums, strict=True)
    }
    content = {"format": _FORMAT, **dataclasses.asdict(dataclasses.replace(record, files=listed))}
    (folder / NAME).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_record(folder: pathlib.Path) -> Record:
    """Reads ``sbjax.json``.

    Raises:
      CheckpointError: it is missing, damaged, or of a newer format.
    """
    path = folder / NAME
    if not path.is_file():
        raise CheckpointError(f"{folder}: not a converted checkpoint, it has no {NAME}")
    try:
        content = read_json(path)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if content.get("format") != _FORMAT:
        raise CheckpointError(
            f"{path}: format {content.get('format')!r}, this version of sbjax reads format {_FORMAT}; update "
            "sbjax, or convert the checkpoint again"
        )
    fields = {field.name for field in dataclasses.fields(Record)}
    if not fields <= set(content):
        raise CheckpointError(f"{path}: has no {', '.join(sorted(fields - set(content)))}; convert again")
    return Record(**{name: content[name] for name in fields})


def check_weights(folder: pathlib.Path, record: Record, table: Iterable[str]) -> None:
    """Compares the weights that are stored with those of the model that the folder's config describes.

    Raises:
      CheckpointError: they differ, which happens when config.json was exchanged after the conversion.
    """
    odd = set(record.stored_dtypes) ^ set(table)
    if odd:
        raise CheckpointError(
            f"{folder}: config.json is not of the model that was converted, they differ in {some(odd)}"
        )


def check_files(folder: pathlib.Path, record: Record, checksums: bool) -> None:
    """Compares the files of the parameters with the record.

    Args:
      folder: the converted folder.
      record: its record.
      checksums: whether to read every file; otherwise only the sizes are compared.

    Raises:
      CheckpointError: a file is missing, cut short or changed; the message names it.
    """
    for name, (size, _) in record.files.items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{path}: missing; the checkpoint is incomplete, convert it again")
        found = path.stat().st_size
        if found != size:
            raise CheckpointError(f"{path}: damaged, it has {found} bytes instead of {size}; convert again")
    if not checksums:
        return
    with concurrent.futures.ThreadPoolExecutor() as pool:
        sums = pool.map(_crc32, [folder / name for name in record.files])
        for (name, (_, wanted)), crc in zip(record.files.items(), sums, strict=True):
            if crc != wanted:
                raise CheckpointError(f"{folder / name}: its checksum is wrong, it is damaged; convert again")


def _crc32(path: pathlib.Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            crc = zlib.crc32(block, crc)
    return crc
