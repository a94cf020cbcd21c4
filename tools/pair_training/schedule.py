"""How long a model is trained, at which rate, and with how many layers on how long a text when."""

import dataclasses

import jax
import optax

_TICKS = 10_000


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a training.

    Attributes:
      layers: depth of the model in this stage.
      length: ``T``, tokens in a row.
      share: of the whole training.
    """

    layers: int
    length: int
    share: float

    @classmethod
    def parse(cls, text: str) -> "Stage":
        """Reads ``LAYERSxLENGTH:SHARE``, such as ``4x256:0.4``.

        Raises:
          ValueError: the text reads otherwise, or a number is not positive.
        """
        sizes, _, share = text.partition(":")
        layers, _, length = sizes.partition("x")
        try:
            stage = cls(int(layers), int(length), float(share))
        except ValueError:
            raise ValueError(f"a stage reads LAYERSxLENGTH:SHARE, such as 4x256:0.4; got {text!r}") from None
        if min(stage.layers, stage.length) < 1 or not 0 < stage.share <= 1:
            raise ValueError(f"layers, length and share of a stage must be positive, got {text!r}")
        return stage


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The course of a training. It ends after ``steps`` or ``minutes``, whatever comes first.

    Attributes:
      steps: at most so many.
      minutes: at most so long, compilation and earlier runs that were interrupted included.
      tokens_per_step: the same in every stage: longer rows, fewer of them.
      rate: highest learning rate.
      stages: from shallow to deep; shares add up to one.
      seed: of parameters and data.
    """

    steps: int
    minutes: float
    tokens_per_step: int
    rate: float
    stages: tuple[Stage, ...]
    seed: int

    def __post_init__(self):
        """Refuses a course that cannot be followed."""
        if self.steps < 1 or not self.minutes > 0 or not self.rate > 0:
            raise ValueError(f"steps, minutes and rate must be positive, got {self}")
        if abs(sum(stage.share for stage in self.stages) - 1) > 1e-6:
            raise ValueError(f"the stages' shares must add up to 1, got {self.stages}")
        for stage in self.stages:
            if self.tokens_per_step % stage.length:
                raise ValueError(f"rows of {stage.length} tokens do not divide {self.tokens_per_step} a step")
        depths = [stage.layers for stage in self.stages]
        if depths != sorted(depths):
            raise ValueError(f"a later stage may not have fewer layers, got {depths}")

    def progress(self, step: int, seconds: float) -> float:
        """How much of the training is over, from 0 to 1."""
        return min(1.0, max(step / self.steps, seconds / (60 * self.minutes)))

    def stage_at(self, progress: float) -> int:
        """Index of the stage that is on."""
        over = 0.0
        for index, stage in enumerate(self.stages):
            over += stage.share
            if progress < over - 1e-9:
                return index
        return len(self.stages) - 1

    def rate_at(self, progress: jax.Array) -> jax.Array:
        """Learning rate: 4 % of the training to warm up, then a cosine down to 2 % of the highest."""
        course = optax.warmup_cosine_decay_schedule(
            0.0, self.rate, warmup_steps=_TICKS // 25, decay_steps=_TICKS, end_value=self.rate / 50
        )
        return course(progress * _TICKS)
