"""AdaEDL: a chain that stops where the entropy of the draft's row makes refusal likely (arXiv 2410.18351)."""

import dataclasses
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from sbjax.methods.checks import number
from sbjax.methods.serial import Serial
from sbjax.scores import entropy


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Threshold:
    """What AdaEDL remembers of every row.

    Attributes:
      value: ``[B]`` float32, the bound below which a chain stops.
      acceptance: ``[B]`` float32, running share of drafted tokens that were accepted.
    """

    value: jax.Array
    acceptance: jax.Array


@dataclasses.dataclass(frozen=True)
class AdaEDL(Serial):
    """Stops behind a token whose row has entropy ``H`` with ``1 - sqrt(gamma * H) < threshold``.

    The bound is the paper's lower bound of the token's acceptance. It depends on the row alone and not
    on the token drawn from it. Entropies are in nats, of the softmax of the row of scores. The
    threshold of a row moves from round to round towards a target acceptance by the rule of
    Draft & Verify (arXiv 2309.08168), as the paper has it.

    Attributes:
      draft_length: ``G``, the longest chain, or "auto".
      gamma: factor of the entropy.
      threshold: its value in the first round.
      target_acceptance: accepted over drafted tokens that the threshold is steered to; 0 to 1.
      step: how far the threshold is moved a round.
      memory: weight of the old acceptance in its running mean.
      smoothing: weight of the old threshold.
    """

    overlapped: ClassVar[bool] = False
    draft_length: int | str = 8
    gamma: float = 0.2
    threshold: float = 0.5
    target_acceptance: float = 0.9
    step: float = 0.01
    memory: float = 0.5
    smoothing: float = 0.9

    def __post_init__(self):
        super().__post_init__()
        number("gamma", self.gamma, 0, 100)
        for name in ("threshold", "target_acceptance", "step", "memory", "smoothing"):
            number(name, getattr(self, name), 0, 1)

    def create(self, text: jax.Array, length: jax.Array) -> Threshold:
        """See ``base.SerialMethod``."""
        del text
        return Threshold(
            value=jnp.full(length.shape, self.threshold, jnp.float32),
            acceptance=jnp.full(length.shape, self.target_acceptance, jnp.float32),
        )

    def stop(self, memory: Threshold, scores: jax.Array) -> jax.Array:
        """See ``base.SerialMethod``."""
        return 1 - jnp.sqrt(self.gamma * entropy(scores)) < memory.value

    def adapt(self, memory: Threshold, drafted, accepted, alive) -> Threshold:
        """Stops earlier after rounds of low acceptance, later after good ones; not after whole chains."""
        counted = alive & (drafted > 0)
        share = accepted / jnp.maximum(drafted, 1)
        acceptance = self.memory * memory.acceptance + (1 - self.memory) * share.astype(jnp.float32)
        move = jnp.where(acceptance < self.target_acceptance, self.step, -self.step)
        wanted = memory.value + move.astype(jnp.float32)
        value = self.smoothing * memory.value + (1 - self.smoothing) * jnp.clip(wanted, 0, 1)
        value = jnp.where(drafted < self.draft_length, value, memory.value)
        return Threshold(
            value=jnp.where(counted, value, memory.value),
            acceptance=jnp.where(counted, acceptance, memory.acceptance),
        )
