"""Documents as one stream of tokens, and batches cut out of it.

A batch is a function of the seed and of the number of rows drawn before it, so a resumed run goes on
with exactly the batches that an uninterrupted one would have seen.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class TokenStream:
    """Documents, one behind the other.

    Attributes:
      tokens: ``[n]`` int32.
      seed: of the order of windows.
    """

    tokens: np.ndarray
    seed: int

    @classmethod
    def of(cls, documents: list[np.ndarray], seed: int) -> "TokenStream":
        """Puts the documents in a random order."""
        order = np.random.default_rng(seed).permutation(len(documents))
        return cls(np.concatenate([documents[i] for i in order]), seed)

    def batch(self, drawn: int, rows: int, length: int) -> np.ndarray:
        """Cuts ``rows`` windows out of the stream; every window comes once in an epoch.

        Args:
          drawn: rows of this length that were drawn before.
          rows: ``B``.
          length: ``T``.

        Returns:
          ``[B, T + 1]`` int32: the inputs, and shifted by one the tokens to predict.
        """
        return np.stack([self._window(drawn + i, length) for i in range(rows)])

    def _window(self, index: int, length: int) -> np.ndarray:
        windows = (len(self.tokens) - 1) // length
        if windows < 2:
            raise ValueError(f"{len(self.tokens)} tokens of text are too few for rows of {length}")
        # One window less than fit, so that every epoch can cut at other places.
        epoch, position = divmod(index, windows - 1)
        order = np.random.default_rng([self.seed, length, epoch])
        shift = int(order.integers(length))
        start = shift + int(order.permutation(windows - 1)[position]) * length
        return self.tokens[start : start + length + 1]


def evaluation_rows(documents: list[np.ndarray], rows: int, length: int) -> np.ndarray:
    """Evenly spaced windows ``[B, T + 1]`` of held-out documents, always the same ones.

    Fewer rows come back when there is less text.

    Raises:
      ValueError: there is not enough text for one row.
    """
    tokens = np.concatenate(documents)
    fit = (len(tokens) - 1) // length
    if fit < 1:
        raise ValueError(f"{len(tokens)} held-out tokens are too few for a row of {length}")
    rows = min(rows, fit)
    starts = np.linspace(0, len(tokens) - 1 - length, rows).astype(int)
    return np.stack([tokens[start : start + length + 1] for start in starts])
