"""The training loop: steps, stages, checkpoints to go on from, and a bar to watch."""

import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from rich.console import Console

from pair_training import packing
from pair_training.architecture import Architecture, grow
from pair_training.objectives import Loss
from pair_training.progress import training_bar
from pair_training.schedule import Schedule
from sbjax.language_model import Params
from sbjax.models.decoder import DecoderModel


class Interrupted(Exception):
    """Training was asked to stop; a checkpoint was written."""


@dataclasses.dataclass
class Place:
    """Where a training stands.

    Attributes:
      step: steps done.
      seconds: time spent, in all runs together.
      stage: index of the stage that the parameters are in.
    """

    step: int = 0
    seconds: float = 0.0
    stage: int = 0


@dataclasses.dataclass
class Trainer:
    """Trains one model; goes on where an earlier run stopped.

    Attributes:
      name: for the bar.
      architecture: of the finished model; stages set the depth until then.
      vocab_size: ``V``.
      max_length: positions of the finished model.
      objective: makes the loss of a model.
      initial: parameters to begin with, of the first stage's depth; None draws them.
      teacher: what the loss gets as its third argument.
      stream: text to train on.
      held_out: documents to measure with.
      schedule: the course.
      folder: of checkpoints.
      checkpoint_minutes: time between two of them.
      console: to report on.
      should_stop: asked after every step; True writes a checkpoint and raises ``Interrupted``.
    """

    name: str
    architecture: Architecture
    vocab_size: int
    max_length: int
    objective: Callable[[DecoderModel], Loss]
    initial: Params | None
    teacher: Params | None
    stream: packing.TokenStream
    held_out: list[np.ndarray]
    schedule: Schedule
    folder: pathlib.Path
    checkpoint_minutes: float
    console: Console
    should_stop: Callable[[], bool] = lambda: False

    def run(self) -> tuple[Params, dict[str, Any]]:
        """Trains to the end.

        Returns:
          The parameters, and steps, seconds and losses for the report.

        Raises:
          Interrupted: ``should_stop`` said so.
          FloatingPointError: the loss is no longer a number.
        """
        with self._manager() as manager, training_bar(self.name, self.console) as bar:
            place, state, losses = self._start(manager)
            saved = time.monotonic()
            while (progress := self.schedule.progress(place.step, place.seconds)) < 1:
                began = time.monotonic()
                place, state = self._enter_stage(place, state, self.schedule.stage_at(progress))
                state, loss = self._step(place.stage)(
                    state, self._batch(place), np.float32(progress), self.teacher
                )
                if not np.isfinite(loss := float(loss)):
                    raise FloatingPointError(
                        f"{self.name}: the loss at step {place.step} is {loss}; lower the learning rate"
                    )
                place.step += 1
                place.seconds += time.monotonic() - began
                bar(progress, loss, self.schedule.tokens_per_step)
                stopped = self.should_stop()
                if stopped or time.monotonic() - saved > 60 * self.checkpoint_minutes:
                    self._save(manager, place, state, losses, loss)
                    saved = time.monotonic()
                if stopped:
                    raise Interrupted(f"{self.name}: stopped after step {place.step}; run again to go on")
            # One slow step may have jumped over the last stage.
            place, state = self._enter_stage(place, state, len(self.schedule.stages) - 1)
            if manager.latest_step() != place.step:
                self._save(manager, place, state, losses, None)
        return state[0], {"steps": place.step, "seconds": round(place.seconds), "losses": losses}

    def _manager(self) -> ocp.CheckpointManager:
        options = ocp.CheckpointManagerOptions(max_to_keep=1, enable_async_checkpointing=False)
        return ocp.CheckpointManager(self.folder.absolute(), options=options, item_names=("state", "place"))

    def _start(self, manager: ocp.CheckpointManager) -> tuple[Place, Any, list]:
        """The newest checkpoint, or new parameters."""
        step = manager.latest_step()
        if step is None:
            params = self._model(0).init(self.schedule.seed) if self.initial is None else self.initial
            return Place(), (params, _optimizer().init(params)), []
        saved = manager.restore(step, args=ocp.args.Composite(place=ocp.args.JsonRestore())).place
        place = Place(step, saved["seconds"], saved["stage"])
        params = self._model(place.stage).abstract()
        abstract = (params, jax.eval_shape(_optimizer().init, params))
        sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        abstract = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), abstract
        )
        state = manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract))).state
        self.console.print(f"{self.name}: going on after step {step} ({place.seconds / 60:.1f} minutes)")
        return place, state, saved["losses"]

    def _save(self, manager, place: Place, state: Any, losses: list, loss: float | None) -> None:
        """Measures on held-out text and writes a checkpoint."""
        held_out = self._held_out_loss(place.stage, state[0])
        entry = {"step": place.step, "minutes": round(place.seconds / 60, 1), "held_out": round(held_out, 4)}
        losses.append(entry | ({} if loss is None else {"training": round(loss, 4)}))
        self.console.print(f"{self.name}: {losses[-1]}")
        content = {"seconds": place.seconds, "stage": place.stage, "losses": losses}
        manager.save(
            place.step,
            args=ocp.args.Composite(state=ocp.args.StandardSave(state), place=ocp.args.JsonSave(content)),
        )

    def _enter_stage(self, place: Place, state: Any, stage: int) -> tuple[Place, Any]:
        """Makes the model as deep as the stage wants it."""
        layers = self.schedule.stages[stage].layers
        params, (clip, adam, decay) = state
        if layers != len(params["layers"]):
            moments = {"mu": grow(adam.mu, layers, keep=False), "nu": grow(adam.nu, layers, keep=False)}
            state = (grow(params, layers, keep=True), (clip, adam._replace(**moments), decay))
        place.stage = stage
        return place, state

    def _batch(self, place: Place) -> np.ndarray:
        length = self.schedule.stages[place.stage].length
        rows = self.schedule.tokens_per_step // length
        return self.stream.batch(place.step * rows, rows, length)

    def _model(self, stage: int) -> DecoderModel:
        layers = self.schedule.stages[stage].layers
        return dataclasses.replace(self.architecture, layers=layers).model(self.vocab_size, self.max_length)

    def _step(self, stage: int) -> Callable:
        return _compiled_step(self.objective, self._model(stage), self.schedule)

    def _held_out_loss(self, stage: int, params: Params) -> float:
        length = self.schedule.stages[stage].length
        rows = max(1, self.schedule.tokens_per_step // length)
        text = packing.evaluation_rows(self.held_out, 8 * rows, length)
        measure = _compiled_loss(self.objective, self._model(stage))
        batches = [text[i : i + rows] for i in range(0, len(text) - rows + 1, rows)] or [text]
        return float(np.mean([measure(params, batch, self.teacher) for batch in batches]))


def _optimizer() -> optax.GradientTransformation:
    """AdamW with clipped gradients; the learning rate is applied by the step."""
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(b1=0.9, b2=0.99),
        # Matrices only: the weights of norms belong near one.
        optax.add_decayed_weights(0.1, mask=lambda tree: jax.tree.map(lambda leaf: leaf.ndim > 1, tree)),
    )


@functools.lru_cache(maxsize=4)
def _compiled_step(objective, model: DecoderModel, schedule: Schedule) -> Callable:
    loss_fn = objective(model)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, tokens, progress, teacher):
        params, moments = state
        loss, gradients = jax.value_and_grad(loss_fn)(params, tokens, teacher)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes weak and strong types
            updates, moments = _optimizer().update(gradients, moments, params)
            rate = schedule.rate_at(progress)
        params = jax.tree.map(lambda leaf, update: leaf - rate.astype(leaf.dtype) * update, params, updates)
        return (params, moments), loss

    return step


@functools.lru_cache(maxsize=4)
def _compiled_loss(objective, model: DecoderModel) -> Callable:
    return jax.jit(objective(model))
