#!/usr/bin/env python
"""Trains a small target and a smaller draft on Python sources, for demonstrations and tests.

The target starts shallow and grows while it learns the next token. The draft begins with the layers that
the target began with, and learns the target's distribution. An interrupted run (Ctrl-C,
SIGTERM, a crash) goes on from its last checkpoint when the same command is given again.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import signal
import sys
from collections.abc import Callable
from typing import Any

import tokenizers
from pair_training import corpus, folders, measurements, objectives, packing, vocabulary
from pair_training.architecture import Architecture, shallow
from pair_training.schedule import Schedule, Stage
from pair_training.training import Interrupted, Trainer
from rich.console import Console

from sbjax.checkpoints import load


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    console = Console(stderr=True)
    try:
        with _StopRequest() as should_stop:
            report = train(args, plan_pair(args), console, should_stop)
    except ValueError as error:
        parser.error(str(error))
    except Interrupted as stopped:
        console.print(str(stopped))
        return 130
    print(json.dumps(report, indent=2))
    return 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=pathlib.Path, required=True, help="folder that gets target/, draft/ and report.json")
    add(
        "--work",
        type=pathlib.Path,
        default=pathlib.Path(".cache/train_pair"),
        help="folder of the checkpoints and the tokenizer; delete it to start anew",
    )
    add(
        "--source",
        type=pathlib.Path,
        default=corpus.standard_library(),
        help="folder whose Python files are the text",
    )
    add("--vocab-size", type=int, default=2048, help="tokens of the byte-pair encoding")
    add("--max-length", type=int, default=1024, help="positions that both models have")
    add("--seed", type=int, default=0, help="of parameters and of the order of the text")
    add("--tokens-per-step", type=int, default=1024, help="tokens in a batch")
    add("--checkpoint-minutes", type=float, default=4.0, help="time between two checkpoints")
    add(
        "--distillation",
        type=float,
        default=0.9,
        help="weight of the target's distribution in the draft's loss",
    )
    add("--evaluation-rows", type=int, default=32, help="held-out rows of --max-length tokens for the report")
    sizes = {"width": 192, "heads": 3, "kv-heads": 1, "mlp-width": 512}
    for name, size in sizes.items():
        add(f"--{name}", type=int, default=size, help="size of both models")
    _add_model(parser, "target", 16, 34.0, 2e-3, ["2x256:0.4", "4x1024:0.3", "16x1024:0.3"])
    _add_model(parser, "draft", 2, 8.0, 5e-4, ["2x256:0.7", "2x1024:0.3"])
    return parser


def _add_model(parser, name: str, layers: int, minutes: float, rate: float, stages: list[str]) -> None:
    group = parser.add_argument_group(name)
    group.add_argument(f"--{name}-layers", type=int, default=layers, help="depth of the finished model")
    group.add_argument(f"--{name}-steps", type=int, default=100_000, help="steps at most")
    group.add_argument(f"--{name}-minutes", type=float, default=minutes, help="minutes at most")
    group.add_argument(f"--{name}-rate", type=float, default=rate, help="highest learning rate")
    group.add_argument(
        f"--{name}-stages",
        nargs="+",
        default=stages,
        metavar="LAYERSxLENGTH:SHARE",
        help="depth, length of rows and share of the training, one after the other; the last is the model",
    )


@dataclasses.dataclass(frozen=True)
class ModelPlan:
    """One model and the course of its training."""

    architecture: Architecture
    schedule: Schedule


def plan_pair(args: argparse.Namespace) -> dict[str, ModelPlan]:
    """Both models, checked before anything is written.

    Raises:
      ValueError: says which settings do not fit together.
    """
    plans = {name: _model_plan(args, name) for name in ("target", "draft")}
    if plans["draft"].architecture.layers > plans["target"].architecture.layers:
        raise ValueError("--draft-layers may not be more than --target-layers: the draft begins with those")
    return plans


def _model_plan(args: argparse.Namespace, name: str) -> ModelPlan:
    layers = getattr(args, f"{name}_layers")
    architecture = Architecture(args.width, layers, args.heads, args.kv_heads, args.mlp_width)
    stages = tuple(Stage.parse(text) for text in getattr(args, f"{name}_stages"))
    if stages[-1].layers != architecture.layers:
        raise ValueError(
            f"--{name}-stages ends with {stages[-1].layers} layers, --{name}-layers is {architecture.layers}"
        )
    if max(stage.length for stage in stages) > args.max_length:
        raise ValueError(f"--{name}-stages has rows longer than --max-length {args.max_length}")
    schedule = Schedule(
        steps=getattr(args, f"{name}_steps"),
        minutes=getattr(args, f"{name}_minutes"),
        tokens_per_step=args.tokens_per_step,
        rate=getattr(args, f"{name}_rate"),
        stages=stages,
        seed=args.seed,
    )
    architecture.model(args.vocab_size, args.max_length)
    return ModelPlan(architecture, schedule)


def train(
    args: argparse.Namespace,
    plans: dict[str, ModelPlan],
    console: Console,
    should_stop: Callable[[], bool],
) -> dict[str, Any]:
    """Trains both models, writes their folders, and measures what was written."""
    documents = corpus.read_corpus(args.source)
    check_settings(args, documents, plans)
    tokenizer = _tokenizer(args, documents)
    training = vocabulary.encode_documents(tokenizer, documents.training)
    held_out = vocabulary.encode_documents(tokenizer, documents.held_out)
    stream = packing.TokenStream.of(training, args.seed)
    console.print(f"{len(training)} files, {len(stream.tokens)} tokens; {len(held_out)} files held out")
    trained, target = {}, None
    for name, plan in plans.items():
        trainer = Trainer(
            name=name,
            architecture=plan.architecture,
            vocab_size=args.vocab_size,
            max_length=args.max_length,
            objective=_objective(args, plans, name),
            initial=None if target is None else shallow(target, plan.schedule.stages[0].layers),
            teacher=target,
            stream=stream,
            held_out=held_out,
            schedule=plan.schedule,
            folder=args.work / name,
            checkpoint_minutes=args.checkpoint_minutes,
            console=console,
            should_stop=should_stop,
        )
        params, trained[name] = trainer.run()
        folders.write_folder(args.out / name, params, plan.architecture, tokenizer, args.max_length)
        # The draft learns from the target as it is shipped, not as it was before rounding.
        target = load(args.out / name, dtype="float32").params
    report = {"training": trained} | measure(args, held_out, len(stream.tokens))
    (args.out / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    return report


def _objective(args: argparse.Namespace, plans: dict[str, ModelPlan], name: str):
    if name == "target":
        return objectives.next_token
    teacher = plans["target"].architecture.model(args.vocab_size, args.max_length)
    return lambda model: objectives.distillation(model, teacher, args.distillation)


def measure(args: argparse.Namespace, held_out: list, training_tokens: int) -> dict[str, Any]:
    """Reads the written folders and measures the pair."""
    loaded = [load(args.out / name, dtype="float32") for name in ("target", "draft")]
    pair = tuple((checkpoint.model, checkpoint.params) for checkpoint in loaded)
    rows = packing.evaluation_rows(held_out, args.evaluation_rows, args.max_length)
    milliseconds = [measurements.step_milliseconds(*model) for model in pair]
    return {
        "training_tokens": training_tokens,
        "held_out": measurements.compare(pair, rows),
        "step_ms": dict(zip(("target", "draft"), milliseconds, strict=True)),
        "step_ratio": round(milliseconds[0] / milliseconds[1], 1),
        "bytes": {name: folders.folder_bytes(args.out / name) for name in ("target", "draft")},
    }


def check_settings(args: argparse.Namespace, documents: corpus.Corpus, plans: dict[str, ModelPlan]) -> None:
    """Keeps a run from going on with the checkpoints of other settings.

    Raises:
      ValueError: ``--work`` holds the checkpoints of a run with other settings or another text.
    """
    settings = {name: dataclasses.asdict(plan) for name, plan in plans.items()}
    settings |= {"text": corpus.fingerprint(documents), "vocab_size": args.vocab_size}
    settings |= {"max_length": args.max_length, "distillation": args.distillation}
    settings = json.loads(json.dumps(settings))
    path = args.work / "settings.json"
    if not path.exists():
        args.work.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=2) + "\n")
    before = json.loads(path.read_text())
    changed = [key for key in settings if settings[key] != before.get(key)]
    if changed:
        raise ValueError(
            f"{args.work} holds a run with other settings of {', '.join(changed)}; "
            "delete the folder or choose another --work"
        )


def _tokenizer(args: argparse.Namespace, documents: corpus.Corpus) -> tokenizers.Tokenizer:
    path = args.work / "tokenizer.json"
    if not path.exists():
        partial = path.with_suffix(".partial")
        vocabulary.train_tokenizer(documents.training, args.vocab_size).save(str(partial))
        partial.rename(path)
    return tokenizers.Tokenizer.from_file(str(path))


class _StopRequest(contextlib.AbstractContextManager):
    """Turns Ctrl-C and SIGTERM into a wish that the training loop honours between two steps."""

    def __enter__(self) -> "_StopRequest":
        self.wanted = False
        self.before = {n: signal.signal(n, self._ask) for n in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def __call__(self) -> bool:
        return self.wanted

    def _ask(self, number: int, frame: Any) -> None:
        if self.wanted:  # the second one does not wait
            raise KeyboardInterrupt
        self.wanted = True


if __name__ == "__main__":
    sys.exit(main())
