"""Arguments to measure a kernel with: many repetitions, of which one argument differs."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kernel_tuning.cost_model import LENGTHS

Shapes = Sequence[jax.ShapeDtypeStruct]


class Sample(NamedTuple):
    """How arguments are made.

    Attributes:
      draw: from the shapes of the arguments and a number of repetitions to the arguments, and to what the
        differing one is in every repetition, ``[repetitions, ..]``.
      place: which argument differs.
    """

    draw: Callable[[Shapes, int], tuple[list[jax.Array], jax.Array]]
    place: int


def _attention(shapes: Shapes, repetitions: int) -> tuple[list[jax.Array], jax.Array]:
    """Normal numbers, caches filled as the cost model has them, own tokens that all queries see."""
    random = np.random.default_rng(0)
    end, slots = shapes[4], shapes[1].shape[2]
    arrays = [jnp.asarray(random.standard_normal(x.shape, np.float32), x.dtype) for x in shapes]
    arrays[3], arrays[7] = jnp.zeros(end.shape, jnp.int32), jnp.ones(shapes[7].shape, bool)
    lengths = (np.resize(np.array(LENGTHS), repetitions) * slots).astype(np.int32)
    return arrays, jnp.asarray(np.broadcast_to(lengths[:, None, None], (repetitions, *end.shape)))


def _verify(shapes: Shapes, repetitions: int) -> tuple[list[jax.Array], jax.Array]:
    """Draws at temperature 1 with top-k 50 and top-p 0.9, of normal logits."""
    random = np.random.default_rng(0)
    logits, keys, rows = shapes[0].shape, shapes[1].shape, shapes[2].shape
    words = random.integers(0, 2**32, (repetitions, *keys), np.uint32)
    settings = [jnp.full(rows, value) for value in (np.float32(1), np.int32(50), np.float32(0.9))]
    scores = jnp.asarray(3 * random.standard_normal(logits, np.float32))
    return [scores, jnp.asarray(words[0]), *settings], jnp.asarray(words)


ATTENTION = Sample(_attention, 4)
VERIFY = Sample(_verify, 1)
