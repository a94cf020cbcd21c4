"""H-RAD for recordings: trained on replayed rounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hrad_training.examples import Examples, split
from hrad_training.job import train_all
from hrad_training.recording import NOT_RECORDED, Job, record
from hrad_training.training import Course

import sbjax
from replay.recording import LAYERS
from replay.replaying import Recording, make_engine
from sbjax.language_model import Params
from sbjax.methods import SpecBranch

_OFFSETS, _POSITIONS, _BRANCHES = range(0, 30, 6), 10, 8


def train_predictor(
    parts: Sequence[dict[str, np.ndarray]], lengths: Sequence[int]
) -> tuple[Params, dict[str, Any]]:
    """Trains one predictor on the rows of several recordings.

    A recording is replayed from several places, so that lines begin anywhere in the text.

    Args:
      parts: recordings of what it may learn from.
      lengths: draft lengths to record with; the predictor sees how long a line is.

    Returns:
      Its parameters, and accuracies on rows it was not trained on.
    """
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    recorded = Recording.of(arrays, features=True)
    positions = recorded.target["script"].shape[1]
    params = {"target": recorded.target, "draft": recorded.draft}
    split_up: dict[str, list[Examples]] = {}
    for length in lengths:
        method = SpecBranch(length, branches=_BRANCHES, features=LAYERS + 1)
        engine, records = make_engine(method, recorded), []
        for offset in _OFFSETS:
            jobs = [
                Job(row, [0] * (1 + offset), row if whole else NOT_RECORDED, 0.0)
                for row, whole in enumerate(recorded.length >= positions - 1)
            ]
            slots = positions + engine.slack + 1
            records.append(record(engine, params, jobs, positions - 1 - offset, slots, 0))
        for name, examples in split(np.concatenate(records), 0).items():
            split_up.setdefault(name, []).append(examples)
    joined = {name: _join(each) for name, each in split_up.items()}
    width = recorded.target["features"].shape[-1]
    config = sbjax.PredictorConfig(features=LAYERS + 1, width=width, positions=_POSITIONS)
    # At a higher rate the network of the features learns the texts by heart in one epoch.
    found, report = train_all(joined, config, Course(rate=2e-5))
    return found["both"], report


def _join(parts: Sequence[Examples]) -> Examples:
    """Examples of lines of different lengths as one; the figures of shorter lines are filled up."""
    longest = max(part.confidence.shape[1] for part in parts)

    def joined(name: str) -> np.ndarray:
        values = [getattr(part, name) for part in parts]
        if name == "confidence":
            values = [np.pad(value, ((0, 0), (0, longest - value.shape[1]))) for value in values]
        return np.concatenate(values)

    return Examples(**{name: joined(name) for name in Examples.__dataclass_fields__})
