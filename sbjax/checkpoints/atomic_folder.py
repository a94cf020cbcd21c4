"""A folder that appears complete or not at all."""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import IO

from sbjax.checkpoints.errors import CheckpointError
from sbjax.checkpoints.hugging_face import CONFIG

_LOCK = ".lock"


@contextlib.contextmanager
def atomic_folder(
    out: pathlib.Path, overwrite: bool, needed: int, mark: str = CONFIG
) -> Iterator[pathlib.Path]:
    """Yields ``OUT.partial`` to be filled, and renames it to ``out`` when the block ends well.

    An exception, Ctrl-C and a full disk included, removes ``OUT.partial``. A killed process leaves it; the
    next run for the same ``out`` starts it anew.

    Args:
      out: the folder to be made.
      overwrite: whether a checkpoint that is there already may be replaced.
      needed: bytes that will be written, at least.
      mark: the file that shows that ``out`` holds what may be replaced.

    Raises:
      CheckpointError: ``out`` is there already, another process is writing it, or the disk is full.
    """
    refuse_existing(out, overwrite, mark)
    work = out.with_name(out.name + ".partial")
    with _disk_errors(out, needed):
        work.mkdir(parents=True, exist_ok=True)
    with (work / _LOCK).open("w") as lock:
        _take(lock, out)
        try:
            with _disk_errors(out, needed):
                _clear(work)
                if shutil.disk_usage(work).free < needed:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                yield work
                _swap(work, out)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise


def refuse_existing(out: pathlib.Path, overwrite: bool, mark: str = CONFIG) -> None:
    """Refuses to write where something is, unless it is a checkpoint that may be overwritten.

    Raises:
      CheckpointError: says what is there.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise CheckpointError(f"{out}: exists already; choose another folder, or ask to overwrite it")
    if not (out / mark).is_file():
        kind = "checkpoint" if mark == CONFIG else "folder of this kind"
        raise CheckpointError(f"{out}: is not a {kind} (it has no {mark}) and is not overwritten")


def _take(lock: IO[str], out: pathlib.Path) -> None:
    import fcntl  # only on POSIX, and only needed by who writes

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CheckpointError(f"{out}: another process is writing it just now") from error


def _clear(work: pathlib.Path) -> None:
    """Removes what an earlier, killed run left."""
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()


def _swap(work: pathlib.Path, out: pathlib.Path) -> None:
    old = out.with_name(out.name + ".replaced")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        out.rename(old)
    os.replace(work, out)
    (out / _LOCK).unlink()
    shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def _disk_errors(out: pathlib.Path, needed: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not _is_disk_full(error):
            raise
        raise CheckpointError(
            f"{out}: the disk is full, nothing was written; about {needed / 1e9:.2f} GB are needed there: "
            "free some space or choose a folder on another disk"
        ) from error


def _is_disk_full(error: BaseException | None) -> bool:
    """TensorStore reports a full disk as a ValueError with the system's words in its text."""
    full = (errno.ENOSPC, errno.EDQUOT)
    while error is not None:
        if getattr(error, "errno", None) in full or any(os.strerror(code) in str(error) for code in full):
            return True
        error = error.__cause__ or error.__context__
    return False
