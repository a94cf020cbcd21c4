"""What a predictor is worth on prompts that it was not trained on, beside simpler ways to guess."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

from hrad_training.examples import Examples
from sbjax import hrad
from sbjax.language_model import Params

CLASSES = ("nothing", "undecided", "everything")


@jax.jit
def opinions(
    params: Params, inputs: jax.Array, confidence: jax.Array, length: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Verdicts ``[N]`` as rounds give them, and log-probabilities ``[N, 3]``, also with one network only."""
    logits = jnp.zeros((len(length), 3), jnp.float32)
    if "target" in params:
        logits = hrad.apply_mlp(params["target"], inputs.astype(jnp.float32))
    logs = jax.nn.log_softmax(hrad.fused_logits(params, logits, confidence, length))
    return hrad.decide(params, logits, confidence, length), logs


def measure(params: Params, examples: Examples) -> dict[str, Any]:
    """Accuracy, by class and temperature, and the confusion of the classes.

    Returns:
      ``accuracy``; ``loss``, the cross-entropy in nats, which also tells good from bad where one class is
      so frequent that it is always said; ``recall`` and ``precision`` by class, None for a class that
      never is or is never said; ``confusion``, lines by right verdict (rows) and given one (columns);
      accuracies ``by_temperature``.
    """
    found, logs = opinions(params, examples.inputs, examples.confidence, examples.length)
    found, logs = np.asarray(found), np.asarray(logs)
    confusion = np.zeros((3, 3), int)
    np.add.at(confusion, (examples.label, found), 1)
    right = confusion.diagonal()
    hits = found == examples.label
    return {
        "accuracy": round(float(hits.mean()), 4),
        "loss": _loss(logs, examples.label),
        "recall": _by_class(right, confusion.sum(1)),
        "precision": _by_class(right, confusion.sum(0)),
        "confusion": confusion.tolist(),
        "by_temperature": {
            str(round(float(value), 3)): round(float(hits[examples.temperature == value].mean()), 4)
            for value in np.unique(examples.temperature)
        },
    }


def majority(training: Examples, test: Examples) -> dict[str, Any]:
    """Always saying what was most frequent in training, and the loss of the frequencies themselves."""
    counts = np.bincount(training.label, minlength=3) + 1.0
    verdict = int(counts.argmax())
    logs = np.tile(np.log(counts / counts.sum()), (len(test), 1))
    accuracy = round(float((test.label == verdict).mean()), 4)
    return {"verdict": CLASSES[verdict], "accuracy": accuracy, "loss": _loss(logs, test.label)}


def _loss(logs: np.ndarray, label: np.ndarray) -> float:
    return round(float(-logs[np.arange(len(label)), label].mean()), 4)


def _by_class(part, whole) -> dict[str, float | None]:
    ratios = [round(float(a / b), 4) if b else None for a, b in zip(part, whole, strict=True)]
    return dict(zip(CLASSES, ratios, strict=True))


def accuracy_table(report: dict[str, Any]) -> Table:
    """The accuracies of a report side by side."""
    counts = ", ".join(f"{count} {name}" for name, count in report["classes"].items())
    table = Table("", "right", "loss", *CLASSES, title=f"{report['test']} lines not trained on ({counts})")
    majority = report["majority"]
    table.add_row(f"always {majority['verdict']!r}", f"{majority['accuracy']:.1%}", str(majority["loss"]))
    for name in ("confidences", "features", "both"):
        if name in report:
            recall = [_percent(report[name]["recall"][each]) for each in CLASSES]
            table.add_row(name, _percent(report[name]["accuracy"]), str(report[name]["loss"]), *recall)
    return table


def confusion_table(title: str, figures: dict[str, Any]) -> Table:
    """The confusion of one way to guess."""
    table = Table("", *(f"said {name}" for name in CLASSES), title=title)
    for name, row in zip(CLASSES, figures["confusion"], strict=True):
        table.add_row(f"was {name}", *map(str, row))
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
