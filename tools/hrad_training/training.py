"""Training of a predictor's networks: Adam on the cross-entropy, the best epoch of a validation part kept.

Inputs are standardised while training; at the end that is folded into the first layers.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from hrad_training.examples import Examples
from sbjax import hrad
from sbjax.language_model import Params
from sbjax.predictor import PredictorConfig


@dataclasses.dataclass(frozen=True)
class Course:
    """The course of a training.

    Attributes:
      epochs: at most.
      batch: examples a step.
      rate: learning rate of Adam.
      patience: epochs without a lower validation loss before the training ends.
      balanced: whether every class counts alike, however rare it is.
      seed: of parameters and order.
    """

    epochs: int = 20
    batch: int = 32
    rate: float = 1e-4
    patience: int = 4
    balanced: bool = False
    seed: int = 0

    def __post_init__(self):
        if min(self.epochs, self.batch, self.patience) < 1 or not self.rate > 0:
            raise ValueError(f"epochs, batch, patience and rate must be positive, got {self}")


def train(
    parts: dict[str, Examples],
    config: PredictorConfig,
    networks: tuple[str, ...],
    course: Course,
    bar: Callable[[int, str], None] = lambda epoch, loss: None,
    initial: Params | None = None,
) -> tuple[Params, dict[str, Any]]:
    """Trains some networks of a predictor together.

    Args:
      parts: ``training`` and ``validation``.
      config: shape of the predictor.
      networks: which of ``config.sizes``; their logits are added.
      course: how long, how fast.
      bar: called after every epoch with their number so far and the validation loss.
      initial: trained parameters to begin with; networks that are not among them begin by adding nothing.

    Returns:
      The parameters of the epoch with the lowest validation loss, and losses by epoch.
    """
    moments = {name: _moments(parts["training"], config, name) for name in networks}
    data = {name: _arrays(parts[name], config, networks) for name in ("training", "validation")}
    params = {name: _begin(config, name, course.seed, initial, moments[name]) for name in networks}
    weights = _class_weights(data["training"]["label"], course.balanced)
    state = (params, jax.jit(optax.adam(course.rate).init)(params))
    rng = np.random.default_rng(course.seed)
    best, kept, losses = np.inf, params, []
    for _ in range(course.epochs):
        state = _epoch(course.rate, state, data["training"], _order(rng, data, course), moments, weights)
        losses.append(float(_loss(state[0], data["validation"], moments, weights)))
        bar(len(losses), f"{losses[-1]:.4f}")
        if losses[-1] < best:
            best, kept = losses[-1], jax.tree.map(np.array, state[0])
        if int(np.argmin(losses)) + course.patience < len(losses):
            break
    if not np.isfinite(best):
        raise FloatingPointError("the validation loss is not a number; lower --rate")
    folded = {name: _fold(kept[name], moments[name]) for name in networks}
    return folded, {"epochs": len(losses), "best_epoch": int(np.argmin(losses)) + 1, "validation": losses}


_line_inputs = jax.jit(hrad.line_inputs, static_argnums=2)


def _arrays(part: Examples, config: PredictorConfig, networks: tuple[str, ...]) -> dict[str, jax.Array]:
    """Inputs of each network, and labels; the target's stay in float16."""
    found = {"label": jnp.asarray(part.label)}
    if "target" in networks:
        found["target"] = jnp.asarray(part.inputs)
    if "line" in networks:
        found["line"] = _line_inputs(part.confidence, part.length, config.positions)
    return found


def _moments(part: Examples, config: PredictorConfig, network: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every input; one that never changes is left as it is."""
    values = np.asarray(_arrays(part, config, (network,))[network], np.float32)
    deviation = values.std(0)
    return values.mean(0), np.where(deviation > 1e-6, deviation, 1).astype(np.float32)


def _begin(config: PredictorConfig, name: str, seed: int, initial: Params | None, moments) -> Params:
    if initial is None:
        return hrad.init_mlp(config.sizes[name], seed)
    if name in initial:
        return _unfold(initial[name], moments)
    params = hrad.init_mlp(config.sizes[name], seed)
    last = str(len(params["layers"]) - 1)
    params["layers"][last] = jax.tree.map(jnp.zeros_like, params["layers"][last])
    return params


def _fold(params: Params, moments) -> Params:
    """Parameters that take inputs as they are, from ones for standardised inputs."""
    mean, deviation = moments
    first = params["layers"]["0"]
    weight = first["weight"] / deviation[None]
    folded = {"weight": jnp.asarray(weight), "bias": jnp.asarray(first["bias"] - weight @ mean)}
    return {"layers": {**params["layers"], "0": folded}}


def _unfold(params: Params, moments) -> Params:
    """The way back of ``_fold``."""
    mean, deviation = moments
    first = params["layers"]["0"]
    plain = {"weight": first["weight"] * deviation[None], "bias": first["bias"] + first["weight"] @ mean}
    return {"layers": {**params["layers"], "0": plain}}


def _class_weights(label: jax.Array, balanced: bool) -> np.ndarray:
    """The weight of every class ``[3]``; balanced ones give each class a third of the whole."""
    counts = np.bincount(np.asarray(label), minlength=3)
    if not balanced:
        return np.ones(3, np.float32)
    return (len(label) / (3 * np.maximum(counts, 1))).astype(np.float32)


def _order(rng: np.random.Generator, data, course: Course) -> jax.Array:
    """``[steps, batch]`` indices of an epoch; a batch that would not be full is left for another epoch."""
    count = len(data["training"]["label"])
    batch = min(course.batch, count)
    return jnp.asarray(rng.permutation(count)[: count // batch * batch].reshape(-1, batch).astype(np.int32))


def _cross_entropy(params: Params, batch: dict[str, jax.Array], moments, weights) -> jax.Array:
    logits = sum(
        hrad.apply_mlp(params[name], (batch[name].astype(jnp.float32) - mean[None]) / deviation[None])
        for name, (mean, deviation) in moments.items()
    )
    logs = jax.nn.log_softmax(logits)
    losses = -jnp.take_along_axis(logs, batch["label"][:, None], 1)[:, 0]
    each = jnp.asarray(weights)[batch["label"]]
    return jnp.sum(each * losses) / jnp.sum(each)


_loss = jax.jit(_cross_entropy)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _epoch(rate: float, state, data, order: jax.Array, moments, weights):
    """One pass over the examples in an order ``[steps, batch]``."""

    def step(state, index):
        params, memory = state
        batch = jax.tree.map(lambda leaf: leaf[index], data)
        gradients = jax.grad(_cross_entropy)(params, batch, moments, weights)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes weak and strong types
            updates, memory = optax.adam(rate).update(gradients, memory, params)
            return (optax.apply_updates(params, updates), memory), None

    return jax.lax.scan(step, state, order)[0]
