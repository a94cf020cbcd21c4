"""A trunk from the row's own text: the continuation of an earlier occurrence of its last tokens."""

import jax
import jax.numpy as jnp

from sbjax.drafting import Chain
from sbjax.engine import Engine, State
from sbjax.indexing import at, take
from sbjax.verification import Trunk


def looked_up(engine: Engine, state: State) -> Chain:
    """Trunks of at most ``method.tokens`` tokens, none of rows that end with the next one.

    A copy that reaches the end of the text goes on with its own beginning, as a periodic text does.
    """
    end = state.length - 1
    place, matched = latest_match(state.text, end, engine.method.ngram)
    behind = jnp.maximum(end - place, 1)
    copied = jnp.arange(engine.method.tokens, dtype=jnp.int32)[None] % behind[:, None]
    length = jnp.clip(state.limit - state.length - 1, 0, engine.method.tokens)
    length = jnp.where(state.alive & (matched > 0), length, 0)
    trunk = Trunk(take(state.text, place[:, None] + 1 + copied), length, None)
    return Chain(trunk, state.draft, jnp.zeros_like(length), state.noise, jnp.int32(0))


def latest_match(text: jax.Array, end: jax.Array, ngram: int) -> tuple[jax.Array, jax.Array]:
    """Where the longest ending of a text stood before.

    Args:
      text: ``[B, S]`` int32.
      end: ``[B]`` int32, place of the last token.
      ngram: the longest ending.

    Returns:
      The place before ``end`` of the ending's last token, the latest if there are several, and the
      ending's length, 0 if even the last token is new; both ``[B]`` int32.
    """
    slots = text.shape[1]
    place = jnp.arange(slots, dtype=jnp.int32)[None]
    matched, going = jnp.zeros(text.shape, jnp.int32), place < end[:, None]
    for back in range(ngram):
        wanted = at(text, jnp.maximum(end - back, 0))[:, None]
        shifted = jnp.pad(text, ((0, 0), (back, 0)), constant_values=-1)[:, :slots]
        going = going & (shifted == wanted)
        matched = matched + going.astype(jnp.int32)
    longest = matched.max(1)
    return jnp.where(matched == longest[:, None], place, -1).max(1), longest
