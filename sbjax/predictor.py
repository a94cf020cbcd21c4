"""H-RAD's predictor as a thing to make, keep and load: settings, parameters, and where they come from."""

import dataclasses
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbjax.checkpoints import orbax
from sbjax.checkpoints.atomic_folder import atomic_folder
from sbjax.checkpoints.errors import CheckpointError
from sbjax.checkpoints.tree import leaf_at, nest
from sbjax.engine import Engine
from sbjax.hrad import init_mlp
from sbjax.json_file import read_json
from sbjax.language_model import Params

FORMAT = 1
SETTINGS, PARAMS = "hrad.json", "params"
"""The files of a saved predictor: its settings, and an Orbax checkpoint."""


@dataclasses.dataclass(frozen=True)
class PredictorConfig:
    """The shape of a predictor.

    Attributes:
      features: ``F``, last layers of the target that it reads.
      width: ``D``, width of the target.
      positions: ``W``, positions of the line whose confidences it sees; 0 is none, then it does not look
        at the line at all.
      hidden: hidden widths of the network that reads the target.
      line_hidden: hidden widths of the one that reads the confidences.
    """

    features: int
    width: int
    positions: int = 0
    hidden: tuple[int, ...] = (256, 64)
    line_hidden: tuple[int, ...] = (32,)

    def __post_init__(self):
        sizes = (self.features, self.width, *self.hidden, *self.line_hidden)
        if not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ValueError(f"all sizes of a predictor must be positive integers, got {self}")
        if not isinstance(self.positions, int) or self.positions < 0:
            raise ValueError(f"positions must be an integer of at least 0, got {self.positions!r}")

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Widths of the layers of each network, by its name among the parameters."""
        found = {"target": ((self.features + 1) * self.width, *self.hidden, 3)}
        if self.positions:
            found["line"] = (2 * self.positions + 2, *self.line_hidden, 3)
        return found

    @property
    def shapes(self) -> dict[tuple[str, ...], tuple[int, ...]]:
        """The shape of every parameter by its path."""
        found = {}
        for name, sizes in self.sizes.items():
            for layer, (into, out) in enumerate(itertools.pairwise(sizes)):
                found[name, "layers", str(layer), "weight"] = (out, into)
                found[name, "layers", str(layer), "bias"] = (out,)
        return found


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """Says how much of a line is worth verifying, see ``sbjax.hrad``.

    Attributes:
      config: its shape.
      params: ``{"target": ..., "line": ...}``, the latter only with ``positions``; float32.
      about: where it comes from: the pair's names, the line length it was trained with, its figures.
    """

    config: PredictorConfig
    params: Params
    about: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def create(cls, config: PredictorConfig, seed: int) -> "Predictor":
        """A predictor with random parameters."""
        return cls(config, {name: init_mlp(sizes, seed) for name, sizes in config.sizes.items()})

    def require_fit(self, engine: Engine, target_params: Params) -> None:
        """Refuses to work with another kind of target, or a method that asks for something else.

        Args:
          engine: what it shall be used by.
          target_params: the target's parameters, or their shapes.

        Raises:
          ValueError: says what does not fit.
        """
        name, wanted = type(engine.method).__name__, engine.method.features
        if wanted != self.config.features:
            raise ValueError(
                f"the predictor reads {self.config.features} layers of the target, {name} has "
                f"features={wanted}: use SpecBranch(features={self.config.features}), or no predictor"
            )
        token = jax.ShapeDtypeStruct((), jnp.int32)
        width = jax.eval_shape(engine.target.embed, target_params, token).shape[-1]
        if width != self.config.width:
            raise ValueError(
                f"the predictor is for targets of width {self.config.width}, this one's is {width}: "
                "train one for this pair with tools/train_hrad.py"
            )

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Writes a folder, which appears when it is complete.

        Args:
          folder: the folder.
          overwrite: whether a predictor that is there may be replaced.

        Raises:
          CheckpointError: something is there that may not be replaced, or the disk is full.
        """
        leaves = {path: np.asarray(leaf_at(self.params, path), np.float32) for path in self.config.shapes}
        bytes_ = sum(leaf.nbytes for leaf in leaves.values())
        settings = {"format": FORMAT, **dataclasses.asdict(self.config), "about": dict(self.about)}
        with atomic_folder(Path(folder), overwrite, 2 * bytes_, mark=SETTINGS) as work:
            orbax.write(work / PARAMS, _pending(self.config), iter([leaves]))
            (work / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def load_predictor(folder: str | Path) -> Predictor:
    """Loads what ``Predictor.save`` wrote.

    Args:
      folder: the folder.

    Raises:
      ValueError: if the folder holds no predictor, or a damaged one.
    """
    folder = Path(folder)
    settings = read_json(folder / SETTINGS)
    if not settings:
        raise CheckpointError(
            f"{folder}: is not a predictor (it has no {SETTINGS}); tools/train_hrad.py makes one"
        )
    config, about = _config(folder / SETTINGS, settings)
    arrays = orbax.read(folder / PARAMS, _pending(config))
    for path, shape in config.shapes.items():
        if arrays[path].shape != shape:
            raise CheckpointError(
                f"{folder}: {'/'.join(path)} has shape {arrays[path].shape}, {SETTINGS} says {shape}"
            )
    return Predictor(config, nest({path: jnp.asarray(array) for path, array in arrays.items()}), about)


def _config(path: Path, settings: dict[str, Any]) -> tuple[PredictorConfig, dict[str, Any]]:
    """Reads the settings' file."""
    if settings.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: has format {settings.get('format')!r}, this version of sbjax reads {FORMAT}"
        )
    fields = [field.name for field in dataclasses.fields(PredictorConfig)]
    if missing := [name for name in (*fields, "about") if name not in settings]:
        raise CheckpointError(f"{path}: lacks {', '.join(missing)}")
    values = {name: settings[name] for name in fields}
    try:
        values |= {name: tuple(values[name]) for name in ("hidden", "line_hidden")}
        return PredictorConfig(**values), dict(settings["about"])
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _pending(config: PredictorConfig) -> list[orbax.Pending]:
    return [orbax.Pending(path, shape, np.dtype(np.float32)) for path, shape in config.shapes.items()]
