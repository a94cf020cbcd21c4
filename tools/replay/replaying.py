"""Runs of policies over recordings, counted row by row, and the time they would take at a ratio c."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import sbjax
from replay.recorded_models import VOCABULARY, RecordedDraft, RecordedTarget
from sbjax.noise import KeyedNoise


@dataclasses.dataclass(frozen=True)
class Figures:
    """Counts of one policy over the rows of a recording, each row a run of its own.

    Attributes:
      tokens: emitted.
      rounds: target forwards.
      steps: draft steps.
      rolled_back: see ``sbjax.Statistics``.
      trimmed: likewise.
      drafted: likewise.
      hits: rounds that a branch survived.
      accepted: drafted tokens that were accepted.
      tested: drafted tokens that were tested.
      method: the policy.
    """

    tokens: int
    rounds: int
    steps: int
    rolled_back: int
    trimmed: int
    drafted: int
    hits: int
    accepted: int
    tested: int
    method: sbjax.Method

    def speed_up(self, c: float) -> float:
        """Over plain decoding, with each model on a device of its own and ``t_target = c t_draft``."""
        # At one ratio all widths cost the same, so that of the rounds need not be known.
        counters = {"target_forwards_by_width": {2: self.rounds}, "draft_forwards": self.steps}
        times = sbjax.StepTimes.from_ratio(c)
        time = sbjax.run_time(counters, self.method, times, plain_forwards=self.tokens)
        return time.plain / time.two_devices

    def summary(self, c: float) -> dict[str, float]:
        """What a table shows."""
        return {
            "speed_up": self.speed_up(c),
            "tokens_a_round": self.tokens / self.rounds,
            "acceptance": self.accepted / max(1, self.tested),
            "rollback": self.rolled_back / max(1, self.drafted),
            "trim": self.trimmed / max(1, self.drafted),
            "hit_rate": self.hits / self.rounds,
        }


class Recording(NamedTuple):
    """A recording on the device: parameters of the recorded pair, and the length of every text."""

    target: dict
    draft: dict
    length: np.ndarray

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray], rows=slice(None), features: bool = False) -> "Recording":
        """Some rows of a recording."""
        target = {"script": jnp.asarray(arrays["script"][rows])}
        if features:
            target["features"] = jnp.asarray(arrays["features"][rows])
        return cls(target, {"rows": jnp.asarray(arrays["rows"][rows])}, arrays["length"][rows])


def make_engine(method: sbjax.Method, recorded: Recording) -> sbjax.Engine:
    """The engine of a recorded pair."""
    rows = recorded.target["script"]
    width = recorded.target["features"].shape[-1] if "features" in recorded.target else 1
    draft = RecordedDraft(4 * rows.shape[1]) if method.draft_length else None
    return sbjax.Engine(RecordedTarget(rows.shape[1], width=width), draft, method, VOCABULARY)


@dataclasses.dataclass(frozen=True)
class Replayed:
    """Counts of one policy by row, each row a run of its own.

    Attributes:
      counts: ``[R]`` by name, see ``Figures``.
      method: the policy.
    """

    counts: dict[str, np.ndarray]
    method: sbjax.Method

    def figures(self, rows=slice(None)) -> Figures:
        """The counts of some rows together."""
        return Figures(
            **{name: int(count[rows].sum()) for name, count in self.counts.items()}, method=self.method
        )


def replay(method: sbjax.Method, recorded: Recording, predictor=None) -> Replayed:
    """Runs a policy over all rows of a recording at once; what is counted is that of single rows."""
    rows, positions = recorded.target["script"].shape
    engine = make_engine(method, recorded)
    params = {"target": recorded.target, "draft": recorded.draft, "predictor": predictor}
    # A recorded position p says what follows it; the run begins at position 0 and ends with the text.
    limits = np.minimum(recorded.length, positions - 1).tolist()
    state = sbjax.start(
        engine, params, [[0]] * rows, limits, sampling=sbjax.Sampling.create(rows),
        noise=KeyedNoise.create(jnp.zeros(rows, jnp.uint32), jnp.arange(rows, dtype=jnp.uint32)),
        slots=positions + engine.slack + 1,
    )  # fmt: skip
    state = sbjax.run(engine, params, state, jnp.int32(10 * positions))
    text, said = np.asarray(state.text), np.asarray(recorded.target["script"])
    for row, limit in enumerate(limits):
        if not np.array_equal(text[row, 1 : limit + 1], said[row, :limit]):
            raise AssertionError(f"row {row} of the replay is not the recorded text")
    return Replayed(_counts(state.statistics.host(), method), method)


def _counts(counters: sbjax.Statistics, method: sbjax.Method) -> dict[str, np.ndarray]:
    names = ("rounds", "rolled_back", "trimmed", "drafted", "accepted", "tested", "hits_main", "hits_hedge")
    found = {name: getattr(counters, name).reshape(len(counters.rounds), -1).sum(1) for name in names}
    found["hits"] = found.pop("hits_main") + found.pop("hits_hedge")
    found["tokens"] = counters.emitted
    found["steps"] = found["rounds"] * method.draft_length if method.overlapped else found["drafted"]
    return found
