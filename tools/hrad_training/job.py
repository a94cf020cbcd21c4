"""The job of ``tools/train_hrad.py``: record, train, measure, save."""

import argparse
import dataclasses
import itertools
from typing import Any

import numpy as np
from command_line.bars import bar_of
from command_line.exits import Interrupted
from rich.console import Console

import sbjax
from hrad_training import evaluation, recording, training
from hrad_training.examples import Examples, split
from hrad_training.prompts import Prompts
from hrad_training.records import RecordFile, record_dtype
from hrad_training.setup import Setup, choose_prompts, load_setup
from sbjax.checkpoints.atomic_folder import refuse_existing
from sbjax.interrupt import Interrupt
from sbjax.language_model import Params
from sbjax.predictor import SETTINGS

_VARIANTS = {"confidences": ("line",), "features": ("target",), "both": ("target", "line")}


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Does what the command line says.

    Returns:
      The figures on prompts that were not trained on.

    Raises:
      ValueError: the request is wrong in some way that the message names.
      Interrupted: Ctrl-C while rounds were recorded.
    """
    refuse_existing(options.out, options.overwrite, SETTINGS)
    course = training.Course(
        options.epochs, options.batch, options.rate, options.patience, options.balanced, options.seed
    )
    setup = load_setup(options, console)
    records = record_all(options, setup, choose_prompts(options, setup.tokenizer), console)
    config = sbjax.PredictorConfig(options.features, setup.width, setup.method.line_length)
    found, figures = train_all(split(records, options.seed), config, course, console)
    for name in _VARIANTS:
        console.print(evaluation.confusion_table(name, figures[name]))
    console.print(evaluation.accuracy_table(figures))
    kept = "features" if options.without_confidences else "both"
    if options.without_confidences:
        config = dataclasses.replace(config, positions=0)
    report = {"kept": kept, **figures}
    about = {**setup.names, "line_length": setup.method.line_length}
    about |= {"method": dataclasses.asdict(setup.method), "held_out": report}
    sbjax.Predictor(config, found[kept], about).save(options.out, overwrite=options.overwrite)
    console.print(f"saved to {options.out}")
    return report


def record_all(options: argparse.Namespace, setup: Setup, prompts: Prompts, console: Console) -> np.ndarray:
    """Records what is not recorded yet, and returns all of it.

    Raises:
      ValueError: a prompt does not fit, or the folder holds other records.
      Interrupted: Ctrl-C.
    """
    slots = recording.slots_for(setup.engine, prompts.ids, options.max_new_tokens)
    jobs = _jobs(options, prompts)
    dtype = record_dtype(setup.method.features, setup.width, setup.method.line_length)
    file = RecordFile(options.work, _settings(options, setup, prompts), dtype)
    batches = [jobs[first : first + options.rows] for first in range(0, len(jobs), options.rows)]
    shown = bar_of("recording", len(batches), console, note="{task.fields[note]}")
    with Interrupt() as interrupt, shown as bar:
        bar(file.batches, "")
        for batch in batches[file.batches :]:
            found = recording.record(
                setup.engine, setup.params, batch, options.max_new_tokens, slots, options.seed
            )
            file.append(found)
            bar(file.batches, f"{len(found)} lines in the last batch")
            if interrupt.pressed and file.batches < len(batches):
                raise Interrupted(
                    f"interrupted behind batch {file.batches} of {len(batches)}; "
                    "give the same command again to go on"
                )
    return file.read()


def _jobs(options: argparse.Namespace, prompts: Prompts) -> list[recording.Job]:
    """A row for every prompt and temperature; the last batch is filled up with rows that are not recorded."""
    jobs = [
        recording.Job(row, prompt, group, temperature)
        for row, (temperature, (prompt, group)) in enumerate(
            itertools.product(options.temperature, zip(prompts.ids, prompts.groups, strict=True))
        )
    ]
    return jobs + [jobs[0]._replace(group=recording.NOT_RECORDED)] * (-len(jobs) % options.rows)


def _settings(options: argparse.Namespace, setup: Setup, prompts: Prompts) -> dict[str, Any]:
    """All that the records depend on."""
    return {
        "pair": setup.names,
        "method": dataclasses.asdict(setup.method),
        "prompts": prompts.fingerprint(),
        "temperature": options.temperature,
        "max_new_tokens": options.max_new_tokens,
        "rows": options.rows,
        "seed": options.seed,
        "dtype": options.dtype,
    }


def train_all(
    parts: dict[str, Examples],
    config: sbjax.PredictorConfig,
    course: training.Course,
    console: Console | None = None,
) -> tuple[dict[str, Params], dict[str, Any]]:
    """Trains every variant; the one that sees both begins with the trained confidences.

    Args:
      parts: ``training``, ``validation`` and ``test``.
      config: shape of the predictor.
      course: how long, how fast.
      console: for bars; None shows none.

    Returns:
      Parameters by variant, and figures on ``test``.
    """
    console = console or Console(quiet=True)
    found: dict[str, Params] = {}
    counts = np.bincount(parts["test"].label, minlength=3).tolist()
    report: dict[str, Any] = {
        "classes": dict(zip(evaluation.CLASSES, counts, strict=True)),
        **{name: len(part) for name, part in parts.items()},
        "majority": evaluation.majority(parts["training"], parts["test"]),
    }
    # The network of the confidences is small, and learns ten times as fast.
    courses = {
        **dict.fromkeys(_VARIANTS, course),
        "confidences": dataclasses.replace(course, rate=10 * course.rate),
    }
    for name, networks in _VARIANTS.items():
        initial = {"line": found["confidences"]["line"]} if name == "both" else None
        with bar_of(name, course.epochs, console, note="validation loss {task.fields[note]}") as bar:
            found[name], history = training.train(parts, config, networks, courses[name], bar, initial)
        report[name] = evaluation.measure(found[name], parts["test"]) | {"best_epoch": history["best_epoch"]}
    return found, report
