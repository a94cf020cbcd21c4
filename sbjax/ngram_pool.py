"""A pool of n-grams for every row: constant shape, the least recently seen makes room.

Axes: ``P`` places of a pool, ``n`` tokens of an n-gram; the others as in ``language_model``.
"""

import chex
import jax
import jax.numpy as jnp

from sbjax.indexing import put, take


@chex.dataclass(frozen=True, mappable_dataclass=False)
class NgramPool:
    """N-grams, looked up by their first token.

    Attributes:
      tokens: ``[B, P, n]`` int32.
      seen: ``[B, P]`` int32, when each n-gram was added last; 0 is an empty place.
      clock: ``[B]`` int32, the latest of those times.
    """

    tokens: jax.Array
    seen: jax.Array
    clock: jax.Array

    @classmethod
    def create(cls, rows: int, places: int, ngram: int) -> "NgramPool":
        """An empty pool."""
        return cls(
            tokens=jnp.zeros((rows, places, ngram), jnp.int32),
            seen=jnp.zeros((rows, places), jnp.int32),
            clock=jnp.zeros(rows, jnp.int32),
        )

    def find(self, first: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
        """The n-grams that begin with a token, the one seen last in front.

        Args:
          first: ``[B]`` int32.
          count: ``G``, how many at most.

        Returns:
          What follows the first token ``[B, G, n - 1]`` int32, and how many there are ``[B]`` int32.
        """
        fits = self.tokens[..., 0] == first[:, None]
        seen, places = jax.lax.top_k(jnp.where(fits, self.seen, 0), count)
        return take(self.tokens, places)[..., 1:], (seen > 0).sum(1).astype(jnp.int32)

    def add(self, ngrams: jax.Array) -> "NgramPool":
        """Adds ``[B, W, n]`` int32, later ones counting as seen later; ``2 W <= P``.

        What is there already is only seen again, so no n-gram is twice in a pool.
        """
        count, places = ngrams.shape[1], self.seen.shape[1]
        order = jnp.arange(count, dtype=jnp.int32)
        time = self.clock[:, None] + 1 + order[None]
        known = _equal(ngrams, self.tokens) & (self.seen > 0)[:, None]
        seen = jnp.maximum(self.seen, jnp.where(known, time[..., None], 0).max(1))
        again = (_equal(ngrams, ngrams) & (order[:, None] < order[None])[None]).any(2)
        new = ~known.any(2) & ~again
        # None of the W oldest was seen just now, since there are W others that were not.
        _, oldest = jax.lax.top_k(-seen, count)
        place = take(oldest, jnp.cumsum(new.astype(jnp.int32), axis=1) - 1)
        place = jnp.where(new, place, places)
        return NgramPool(
            tokens=put(self.tokens, place, ngrams), seen=put(seen, place, time), clock=self.clock + count
        )


def _equal(left: jax.Array, right: jax.Array) -> jax.Array:
    """``[B, W, P]``: which of ``[B, W, n]`` equal which of ``[B, P, n]``."""
    return (left[:, :, None] == right[:, None]).all(-1)
