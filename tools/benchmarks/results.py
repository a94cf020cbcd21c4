"""The JSON file of a benchmark: written after every measurement, so that an interrupted run loses none."""

import argparse
import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax
import jaxlib

import sbjax


class Results:
    """The content of a result file.

    Attributes:
      content: what is in it: the benchmark's name, its options, the machine, "complete", and measurements.
    """

    def __init__(self, path: Path, name: str, options: argparse.Namespace):
        """Starts the file, and with it overwrites an older one.

        Args:
          path: the file.
          name: of the benchmark.
          options: its command line.
        """
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.content: dict[str, Any] = {
            "benchmark": name,
            "complete": False,
            "started": _now(),
            "options": {key: _plain(value) for key, value in vars(options).items() if key != "out"},
            "machine": machine(),
            "load_average_before": os.getloadavg(),
        }
        self.save()

    def put(self, **entries: Any) -> None:
        """Sets entries and saves."""
        self.content.update(entries)
        self.save()

    def finish(self) -> None:
        """Marks the results as complete and saves."""
        self.put(complete=True, ended=_now(), load_average_after=os.getloadavg())

    def save(self) -> None:
        """Writes the file; it is replaced as a whole, never half written."""
        work = self._path.with_name(self._path.name + ".partial")
        work.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        work.replace(self._path)


def machine() -> dict[str, Any]:
    """Where and with what something was measured."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "platform": jax.default_backend(),
        "system": platform.system(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "sbjax": sbjax.__version__,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    """An option for the file: of paths only the last part, since folders differ from machine to machine."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Path) or (isinstance(value, str) and "/" in value):
        return Path(value).name
    return value
