"""The text a pair is trained on: Python sources of a folder, the standard library by default."""

import dataclasses
import hashlib
import pathlib
import sysconfig

# Not the standard library's own, tests and their data, bytecode, then tables and copies of other files.
_FOREIGN = ("site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__")
_DULL = ("encodings", "pydoc_data", "lib2to3", "ensurepip")
SKIPPED_FOLDERS = frozenset(_FOREIGN + _DULL)
HELD_OUT_ONE_IN = 20


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Documents to train on and documents only to measure with, one string a file.

    Attributes:
      training: documents in the order of their paths.
      held_out: the same; no file is in both.
    """

    training: tuple[str, ...]
    held_out: tuple[str, ...]


def standard_library() -> pathlib.Path:
    """Folder of the running interpreter's standard library."""
    return pathlib.Path(sysconfig.get_path("stdlib"))


def read_corpus(folder: pathlib.Path) -> Corpus:
    """Reads all Python sources under a folder.

    Files are sorted by path, files with the same bytes are taken once, and a hash of the path decides
    which are held out: the split is the same on every machine and does not move when files are added.

    Args:
      folder: searched recursively; folders named in ``SKIPPED_FOLDERS`` are left out.

    Raises:
      ValueError: one of the two parts would be empty.
    """
    training, held_out, seen = [], [], set()
    for path in sorted(folder.rglob("*.py")):
        relative = path.relative_to(folder)
        if SKIPPED_FOLDERS.intersection(relative.parts[:-1]):
            continue
        content = path.read_bytes()
        digest = hashlib.sha256(content).digest()
        if digest in seen or not content.strip():
            continue
        seen.add(digest)
        part = held_out if _is_held_out(relative) else training
        part.append(content.decode("utf-8", errors="replace").replace("\r\n", "\n"))
    if not training or not held_out:
        raise ValueError(
            f"{folder}: {len(training)} Python files to train on and {len(held_out)} held out; "
            f"both must be there (one file in {HELD_OUT_ONE_IN} is held out)"
        )
    return Corpus(tuple(training), tuple(held_out))


def fingerprint(corpus: Corpus) -> str:
    """A hash of all text, to tell whether two runs read the same."""
    digest = hashlib.sha256()
    for part in (corpus.training, corpus.held_out):
        for document in part:
            digest.update(hashlib.sha256(document.encode()).digest())
        digest.update(b"|")
    return digest.hexdigest()


def _is_held_out(relative: pathlib.PurePath) -> bool:
    digest = hashlib.sha256(relative.as_posix().encode()).digest()
    return int.from_bytes(digest[:8], "big") % HELD_OUT_ONE_IN == 0
