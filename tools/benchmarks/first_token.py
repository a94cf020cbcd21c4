"""``first-token``: time to the first token, with nothing compiled, with a filled compilation cache, and warm.

Cold and cached are fresh processes; the time from a request to its first token includes tracing and
compiling, or loading what was compiled. The start of Python and the loading of weights are listed apart.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import sbjax
from benchmarks.results import Results
from benchmarks.worker import Worker
from sbjax.start import bucket

STATES = ("cold", "cached", "warm")


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module."""
    tokenizer = sbjax.Tokenizer.from_folder(options.target)
    prompt = tokenizer.encode(options.prompt)
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for repeat in range(options.repeats):
        for length in (0, options.draft_length):
            name = f"SpS({length})" if length else "plain"
            with tempfile.TemporaryDirectory() as cache:
                for state in ("cold", "cached"):
                    fresh, again = _requests(options, prompt, length, cache)
                    times = found.setdefault(name, {each: [] for each in STATES})
                    times[state].append(fresh)
                    times["warm"].append(again)
                    results.put(seconds=found)
                    console.print(f"repeat {repeat + 1}: {name}, {state}: {fresh['first_token']:.2f} s")
    medians = {
        name: {
            state: {key: statistics.median(one[key] for one in every) for key in every[0]}
            for state, every in states.items()
        }
        for name, states in found.items()
    }
    results.put(median_seconds=medians, prompt_tokens=len(prompt))
    console.print(_table(medians))


def _requests(options: argparse.Namespace, prompt: list[int], length: int, cache: str) -> tuple[dict, dict]:
    """Starts a process that compiles into ``cache``, and asks it twice for a first token."""
    environment = {
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command: dict[str, Any] = {
        "prompt": prompt,
        "max_new_tokens": options.max_new_tokens,
        "stop_ids": [],
        "slots": bucket(len(prompt) + options.max_new_tokens + length + 1),
        "draft_length": length,
        "max_rounds": 1,
    }
    begin = time.perf_counter()
    with Worker(
        "sbjax", Path(options.target), Path(options.draft) if length else None, environment
    ) as worker:
        started = time.perf_counter() - begin
        fresh, again = (worker.ask(**command)["seconds"] for _ in range(2))
    loading = worker.ready["load_seconds"]
    return (
        {"first_token": fresh, "loading": loading, "from_the_start": started + fresh},
        {"first_token": again},
    )


def _table(medians: dict[str, dict[str, dict[str, float]]]) -> Table:
    table = Table(title="Seconds to the first token, median", title_justify="left")
    table.add_column("")
    for name in ("request to token", "imports and loading", "process to token"):
        table.add_column(name, justify="right")
    for name, states in medians.items():
        for state, times in states.items():
            cells = [
                f"{times[key]:.3f}" if key in times else ""
                for key in ("first_token", "loading", "from_the_start")
            ]
            table.add_row(f"{name}, {state}", *cells)
    return table
