"""The drafted line: what the draft has written behind the text of every row, between two rounds.

    text .. pending | c1 .. cm | c(m+1)    | c(m+2) .. cL
                    | trunk    | main head | head start of the main branch

The draft has processed all of it but the last token, so its cache holds ``length + L - 1`` tokens; after
a miss ``L`` is 0 and it lacks the pending token alone. Axes: ``C`` tokens a line can hold, ``E``
alternatives kept at every position; the others as in ``language_model``.
"""

from typing import TYPE_CHECKING

import chex
import jax
import jax.numpy as jnp

from sbjax.indexing import at

if TYPE_CHECKING:
    from sbjax.engine import Engine


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Drawn:
    """Drawn tokens and what hedges and retention need to know of the rows they were drawn from.

    Attributes:
      tokens: ``[..., C]`` int32.
      confidence: ``[..., C]`` float32, the draft's probability of each token.
      alternatives: ``[..., C, E]`` int32, the best other tokens at the same position.
      chances: ``[..., C, E]`` float32, their probabilities.
      laws: ``[..., C, V]`` float32, the rows drawn from; None under the shared-noise rule.
    """

    tokens: jax.Array
    confidence: jax.Array
    alternatives: jax.Array
    chances: jax.Array
    laws: jax.Array | None

    @classmethod
    def create(cls, engine: "Engine", *axes: int) -> "Drawn":
        """Room for tokens of shape ``axes``, nothing drawn."""
        extra = engine.method.branches - 1
        laws = None if engine.rule == "match" else jnp.zeros((*axes, engine.vocab_size), jnp.float32)
        return cls(
            tokens=jnp.zeros(axes, jnp.int32),
            confidence=jnp.zeros(axes, jnp.float32),
            alternatives=jnp.zeros((*axes, extra), jnp.int32),
            chances=jnp.zeros((*axes, extra), jnp.float32),
            laws=laws,
        )


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Line:
    """Drafted tokens behind the pending one.

    Attributes:
      drawn: ``[B, C]`` tokens with their rows' figures.
      length: ``[B]`` int32, ``L``; 0 after a miss.
      trunk: ``[B]`` int32, ``m``: how many of them the target checks next; less than ``L`` unless both
        are 0.
    """

    drawn: Drawn
    length: jax.Array
    trunk: jax.Array

    @classmethod
    def create(cls, engine: "Engine", rows: int) -> "Line":
        """Empty lines."""
        drawn = Drawn.create(engine, rows, engine.method.line_length)
        return cls(drawn=drawn, length=jnp.zeros(rows, jnp.int32), trunk=jnp.zeros(rows, jnp.int32))

    @property
    def hit(self) -> jax.Array:
        """``[B]`` bool: whether there is a line, as after a hit."""
        return self.length > 0

    @property
    def head(self) -> jax.Array:
        """``[B]`` int32, the main head ``c(m+1)``; meaningless without a line."""
        return at(self.drawn.tokens, self.trunk)

    @property
    def head_start(self) -> jax.Array:
        """``[B]`` int32, tokens behind the main head."""
        return jnp.maximum(self.length - self.trunk - 1, 0)
