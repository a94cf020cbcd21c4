"""The job of ``tools/train_hrad.py``: record, train, measure, save."""

import argparse
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
from command_line.flags import given
from command_line.pairs import plan_pair
from pair_training.corpus import standard_library
from rich.console import Console

import sbjax
from hrad_training import evaluation, prompts, recording, training
from hrad_training.bars import bar_of
from hrad_training.examples import Examples, split
from hrad_training.records import RecordFile, record_dtype
from sbjax.checkpoints.atomic_folder import refuse_existing
from sbjax.interrupt import Interrupt
from sbjax.language_model import Params
from sbjax.methods import SpecBranch
from sbjax.predictor import SETTINGS

_VARIANTS = {"confidences": ("line",), "features": ("target",), "both": ("target", "line")}


class Interrupted(Exception):
    """The recording was asked to stop; the message says what is there."""


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
    target, draft, method = _pair(options, console)
    chosen = _prompts(options, target)
    records = _record(options, target, draft, method, chosen, console)
    parts = split(records, options.seed)
    config = sbjax.PredictorConfig(options.features, records["inputs"].shape[-1], method.line_length)
    params, report = train_all(parts, config, course, console)
    for name in _VARIANTS:
        console.print(evaluation.confusion_table(name, report[name]))
    console.print(evaluation.accuracy_table(report))
    kept = "features" if options.without_confidences else "both"
    if kept == "features":
        config = dataclasses.replace(config, positions=0)
    report = {"kept": kept, **report}
    about = _names(options) | {"line_length": method.line_length, "method": dataclasses.asdict(method)}
    sbjax.Predictor(config, params[kept], {**about, "held_out": report}).save(
        options.out, overwrite=options.overwrite
    )
    console.print(f"saved to {options.out}")
    return report


def _names(options: argparse.Namespace) -> dict[str, str]:
    """What the two models are called."""
    plan = plan_pair(argparse.Namespace(**vars(options) | {"method": "SpecBranch"}))
    return {"target": _name(plan.target), "draft": _name(plan.draft)}


def _name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def _pair(options: argparse.Namespace, console: Console) -> tuple[sbjax.Model, sbjax.Model, SpecBranch]:
    """Both models, and SpecBranch with whole lines as trunks."""
    plan = plan_pair(argparse.Namespace(**vars(options) | {"method": "SpecBranch"}))
    changes = given(branches=options.branches, hedge=options.hedge, head_start=options.head_start)
    method = dataclasses.replace(plan.method, **changes, features=options.features, epsilon=0.0)
    if method.draft_length == "auto":
        raise ValueError('rounds are recorded with one draft length, not "auto": pass --draft-length')
    if method.line_length < 2:
        raise ValueError("lines of one token leave nothing to decide: raise --draft-length or --head-start")
    with console.status("loading the models"):
        pair = plan.load()
    if pair.target.tokenizer is None:
        raise ValueError(f"{plan.target} has no tokenizer, which the prompts need")
    return pair.target, pair.draft, method


def _prompts(options: argparse.Namespace, target: sbjax.Model) -> prompts.Prompts:
    shared = {"count": options.prompts, "seed": options.seed}
    if options.prompt_file:
        return prompts.from_files(
            options.prompt_file,
            target.tokenizer,
            field=options.field,
            chat=options.chat,
            longest=options.prompt_tokens or 512,
            **shared,
        )
    folder = options.source or standard_library()
    return prompts.from_sources(folder, target.tokenizer, longest=options.prompt_tokens or 64, **shared)


def _record(options, target, draft, method, chosen: prompts.Prompts, console: Console) -> np.ndarray:
    """Records what is not recorded yet, and returns all of it."""
    target.tokenizer.require_same(draft.tokenizer)
    vocab_size = min(target.model.vocab_size, target.tokenizer.vocab_size)
    engine = sbjax.Engine(target.model, draft.model, method, vocab_size)
    slots = recording.slots_for(engine, chosen.ids, options.max_new_tokens)
    jobs = _jobs(options, chosen)
    width = target.model.embed(target.params, np.zeros(1, np.int32)).shape[-1]
    file = RecordFile(
        options.work,
        _settings(options, method, chosen),
        record_dtype(method.features, width, method.line_length),
    )
    params = {"target": target.params, "draft": draft.params}
    batches = [jobs[first : first + options.rows] for first in range(0, len(jobs), options.rows)]
    with Interrupt() as interrupt, bar_of("recording", len(batches), console, "{task.fields[note]}") as bar:
        bar(file.batches, "")
        for batch in batches[file.batches :]:
            found = recording.record(engine, params, batch, options.max_new_tokens, slots, options.seed)
            file.append(found)
            bar(file.batches, f"{len(found)} lines in the last batch")
            if interrupt.pressed and file.batches < len(batches):
                raise Interrupted(
                    f"interrupted behind batch {file.batches} of {len(batches)}; "
                    "give the same command again to go on"
                )
    return file.read()


def _jobs(options: argparse.Namespace, chosen: prompts.Prompts) -> list[recording.Job]:
    """A row for every prompt and temperature; the last batch is filled up with rows that are not recorded."""
    jobs = [
        recording.Job(row, prompt, group, temperature)
        for row, (temperature, (prompt, group)) in enumerate(
            itertools.product(options.temperature, zip(chosen.ids, chosen.groups, strict=True))
        )
    ]
    return jobs + [jobs[0]._replace(group=recording.NOT_RECORDED)] * (-len(jobs) % options.rows)


def _settings(options: argparse.Namespace, method: SpecBranch, chosen: prompts.Prompts) -> dict[str, Any]:
    """All that the records depend on."""
    return {
        "pair": _names(options),
        "method": dataclasses.asdict(method),
        "prompts": chosen.fingerprint(),
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
    """Trains every variant; the one that sees both begins with the trained confidences."""
    console = console or Console(quiet=True)
    found: dict[str, Any] = {}
    report: dict[str, Any] = {
        "classes": dict(
            zip(evaluation.CLASSES, np.bincount(parts["test"].label, minlength=3).tolist(), strict=True)
        ),
        **{name: len(part) for name, part in parts.items()},
        "majority": evaluation.majority(parts["training"], parts["test"]),
    }
    for name, networks in _VARIANTS.items():
        initial = {"line": found["confidences"]["line"]} if name == "both" else None
        with bar_of(name, course.epochs, console, "validation loss {task.fields[note]}") as bar:
            found[name], history = training.train(parts, config, networks, course, bar, initial)
        report[name] = evaluation.measure(found[name], parts["test"]) | {"best_epoch": history["best_epoch"]}
    return found, report
