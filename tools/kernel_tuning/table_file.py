"""The table as a file: entries are added one by one, and the file is never half written."""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import jax

from kernel_tuning.search import Found
from kernels_pallas.block_table import Table, read_table, wrong


class TableFile:
    """A table that is written after every entry.

    Attributes:
      content: the table.
    """

    def __init__(self, path: Path):
        """Reads the file, if there is one.

        Raises:
          ValueError: what is there is no valid table.
        """
        self._path = path
        self.content: Table = read_table(path) if path.exists() else {}

    def how(self, kind: str, kernel: str, shape: str) -> str | None:
        """How an entry was found, None if there is none."""
        entry = self.content.get(kind, {}).get(kernel, {}).get(shape)
        return None if entry is None else entry.get("by", "hand")

    def put(self, kind: str, kernel: str, shape: str, found: Found, by: str) -> None:
        """Adds what was found and saves.

        Raises:
          ValueError: it is not valid.
        """
        entry: dict[str, Any] = {"blocks": found.blocks, "by": by, "microseconds": _micro(found.seconds)}
        entry["default_microseconds"] = _micro(found.default_seconds)
        if why := wrong(kernel, shape, entry):
            raise ValueError(f"{kernel}, {shape}: {why}")
        self.content.setdefault(kind, {}).setdefault(kernel, {})[shape] = entry | versions()
        self.save()

    def save(self) -> None:
        """Writes the file, an entry a line; it is replaced as a whole."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        work = self._path.with_name(self._path.name + ".partial")
        work.write_text(_text(self.content), encoding="utf-8")
        work.replace(self._path)


def versions() -> dict[str, str]:
    """What compiled."""
    found = {"jax": jax.__version__}
    try:
        return found | {"libtpu": importlib.metadata.version("libtpu")}
    except importlib.metadata.PackageNotFoundError:
        return found


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6, 2)


def _text(table: Table) -> str:
    """JSON with an entry a line, so that a difference of two tables can be read."""
    kinds = []
    for kind, kernels in sorted(table.items()):
        groups = []
        for kernel, entries in sorted(kernels.items()):
            lines = [
                f"   {json.dumps(shape)}: {json.dumps(entry)}" for shape, entry in sorted(entries.items())
            ]
            groups.append(f"  {json.dumps(kernel)}: {{\n" + ",\n".join(lines) + "\n  }")
        kinds.append(f" {json.dumps(kind)}: {{\n" + ",\n".join(groups) + "\n }")
    return "{\n" + ",\n".join(kinds) + "\n}\n"
