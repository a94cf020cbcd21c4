"""The file of recorded rounds: records of fixed size that are appended batch by batch, and resumed."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from sbjax.hrad import EVERYTHING, NOTHING, UNDECIDED

SETTINGS, RECORDS, DONE = "settings.json", "records.bin", "done.jsonl"


def record_dtype(features: int, width: int, line_length: int) -> np.dtype:
    """The layout of a record.

    ``inputs`` are those of ``hrad.target_inputs`` at the outcome before the line, ``confidence`` and
    ``length`` the line's, ``accepted`` how many of its ``length - 1`` possible trunk tokens the target then
    accepted.
    """
    return np.dtype(
        [
            ("group", "<i4"),
            ("temperature", "<f4"),
            ("inputs", "<f2", (features + 1, width)),
            ("confidence", "<f4", (line_length,)),
            ("length", "<i4"),
            ("accepted", "<i4"),
        ]
    )


def labels(records: np.ndarray) -> np.ndarray:
    """The right verdict on every record: ``[N]`` int32."""
    accepted, trunk = records["accepted"], records["length"] - 1
    found = np.where(accepted == trunk, EVERYTHING, np.where(accepted == 0, NOTHING, UNDECIDED))
    return found.astype(np.int32)


class RecordFile:
    """A folder with the records of a run, those of a batch of prompts written at once.

    Attributes:
      folder: holds the settings of the run, the records, and a line for every batch that is complete.
      dtype: layout of a record.
      batches: how many batches are complete.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], dtype: np.dtype):
        """Opens the folder, or makes it; what an interrupted batch left is cut off.

        Raises:
          ValueError: it holds records of other settings.
        """
        self.folder, self.dtype = folder, dtype
        self._check(json.loads(json.dumps(settings)))
        done = self._done()
        self.batches = len(done)
        with (folder / RECORDS).open("ab") as file:
            file.truncate((done[-1]["records"] if done else 0) * dtype.itemsize)

    def _check(self, settings: dict[str, Any]) -> None:
        path = self.folder / SETTINGS
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(settings, indent=2) + "\n")
        before = json.loads(path.read_text())
        if changed := [key for key in settings if settings[key] != before.get(key)]:
            raise ValueError(
                f"{self.folder} holds rounds recorded with other settings of {', '.join(changed)}; "
                "delete the folder or choose another --work"
            )

    def _done(self) -> list[dict[str, int]]:
        """What is complete; a line that was cut short does not count, and is removed."""
        path = self.folder / DONE
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if whole != lines:
            path.write_text("".join(whole))
        return [json.loads(line) for line in whole]

    def append(self, records: np.ndarray) -> None:
        """Adds the records of the next batch."""
        with (self.folder / RECORDS).open("ab") as file:
            file.write(records.tobytes())
            file.flush()
            os.fsync(file.fileno())
            total = file.tell() // self.dtype.itemsize
        with (self.folder / DONE).open("a") as file:
            file.write(json.dumps({"batch": self.batches, "records": total}) + "\n")
        self.batches += 1

    def read(self) -> np.ndarray:
        """All records ``[N]``."""
        return np.fromfile(self.folder / RECORDS, self.dtype)
