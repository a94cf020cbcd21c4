"""Lookahead decoding: n-grams of the target's own Jacobi iteration as guesses (arXiv 2402.02057)."""

import dataclasses
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from sbjax.indexing import take
from sbjax.methods.checks import integer
from sbjax.ngram_pool import NgramPool


@chex.dataclass(frozen=True, mappable_dataclass=False)
class Lookout:
    """What Lookahead remembers of every row.

    Attributes:
      window: ``[B, N - 1, W]`` int32, the last guesses of ``W`` iterations, oldest first: column ``c`` of
        row ``r`` is a guess of the token ``c + r`` behind the pending one.
      pool: n-grams of ``N`` tokens that came out of the window.
    """

    window: jax.Array
    pool: NgramPool


@dataclasses.dataclass(frozen=True)
class Lookahead:
    """One target forward improves a window of guesses and checks n-grams that earlier ones led to.

    ``W`` chains run down the window, one a column. What the target picks behind them makes ``W`` new
    n-grams for the pool, and the newest row of the window. Pooled n-grams that begin with the pending
    token are checked in the same forward, and the one that goes furthest is accepted that far. All picks
    are made with the shared noise of their position: the text is plain decoding's at every temperature.

    The window moves with the text, so a guess stays at its position. The columns that it leaves behind
    come back at its end.

    Attributes:
      window: ``W``, columns.
      ngram: ``N``, tokens of an n-gram; the window has ``N - 1`` rows.
      guesses: ``G``, n-grams that a round can check.
      pool: n-grams that are kept of every row, the most recent ones.
    """

    draft_length: ClassVar[int] = 0
    overlapped: ClassVar[bool] = False
    features: ClassVar[int] = 0
    window: int = 7
    ngram: int = 5
    guesses: int = 7
    pool: int = 512

    def __post_init__(self):
        integer("window", self.window, 1)
        integer("ngram", self.ngram, 2)
        integer("guesses", self.guesses, 1, "; use Autoregressive() for 0")
        least = max(2 * self.window, self.guesses)
        integer("pool", self.pool, least, ": twice the window, and no less than guesses")

    @property
    def trunk_length(self) -> int:
        """Tokens of a guess behind the pending one."""
        return self.ngram - 1

    @property
    def forward_tokens(self) -> tuple[int, int]:
        """Tokens of a target forward without and with all guesses."""
        return self.window * (self.ngram - 1), (self.window + self.guesses) * (self.ngram - 1)

    def create(self, text: jax.Array, length: jax.Array) -> Lookout:
        """An empty pool, and a window of tokens from anywhere in the prompts; see ``base.SerialMethod``."""
        rows, shape = text.shape[0], (self.ngram - 1, self.window)
        anywhere = np.random.default_rng(0).random((1, shape[0] * shape[1]), np.float32)
        place = (anywhere * length[:, None].astype(jnp.float32)).astype(jnp.int32)
        window = take(text, jnp.minimum(place, length[:, None] - 1)).reshape(rows, *shape)
        return Lookout(window=window, pool=NgramPool.create(rows, self.pool, self.ngram))
