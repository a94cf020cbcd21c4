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
def verdicts(params: Params, inputs: jax.Array, confidence: jax.Array, length: jax.Array) -> jax.Array:
    """What the rounds would decide: ``[N]`` int32, also where a network is left out."""
    logits = jnp.zeros((len(length), 3), jnp.float32)
    if "target" in params:
        logits = hrad.apply_mlp(params["target"], inputs.astype(jnp.float32))
    return hrad.decide(params, logits, confidence, length)


def measure(params: Params, examples: Examples) -> dict[str, Any]:
    """Accuracy, by class and temperature, and the confusion of the classes.

    Returns:
      ``accuracy``; ``recall`` and ``precision`` by class, None for a class that never is or is never
      said; ``confusion``, lines by right verdict (rows) and given one (columns); ``by_temperature``.
    """
    found = np.asarray(verdicts(params, examples.inputs, examples.confidence, examples.length))
    confusion = np.zeros((3, 3), int)
    np.add.at(confusion, (examples.label, found), 1)
    right = confusion.diagonal()
    hits = found == examples.label
    return {
        "accuracy": round(float(hits.mean()), 4),
        "recall": _by_class(right, confusion.sum(1)),
        "precision": _by_class(right, confusion.sum(0)),
        "confusion": confusion.tolist(),
        "by_temperature": {
            str(round(float(value), 3)): round(float(hits[examples.temperature == value].mean()), 4)
            for value in np.unique(examples.temperature)
        },
    }


def majority(training: Examples, test: Examples) -> dict[str, Any]:
    """The accuracy of always saying what was most frequent in training."""
    verdict = int(np.bincount(training.label, minlength=3).argmax())
    return {"verdict": CLASSES[verdict], "accuracy": round(float((test.label == verdict).mean()), 4)}


def _by_class(part, whole) -> dict[str, float | None]:
    ratios = [round(float(a / b), 4) if b else None for a, b in zip(part, whole, strict=True)]
    return dict(zip(CLASSES, ratios, strict=True))


def accuracy_table(report: dict[str, Any]) -> Table:
    """The accuracies of a report side by side."""
    counts = ", ".join(f"{count} {name}" for name, count in report["classes"].items())
    table = Table("", "right", *CLASSES, title=f"{report['test']} lines not trained on ({counts})")
    table.add_row(f"always {report['majority']['verdict']!r}", f"{report['majority']['accuracy']:.1%}")
    for name in ("confidences", "features", "both"):
        if name in report:
            recall = [_percent(report[name]["recall"][each]) for each in CLASSES]
            table.add_row(name, _percent(report[name]["accuracy"]), *recall)
    return table


def confusion_table(title: str, figures: dict[str, Any]) -> Table:
    """The confusion of one way to guess."""
    table = Table("", *(f"said {name}" for name in CLASSES), title=title)
    for name, row in zip(CLASSES, figures["confusion"], strict=True):
        table.add_row(f"was {name}", *map(str, row))
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
