"""A pair of models that say again what a real pair said along a recorded text.

Tokens are ranks: at every position the draft's best ids are 0, 1, 2, .. in this order, so a vocabulary of
a few hundred entries holds all that a policy can look at. The target says the recorded text. What the
draft would say behind a wrong token was not recorded; it says what it said at that position of the text.
Which tokens are accepted does not depend on that, since everything behind a wrong token is refused; only
how a policy spends its branches there does.

Axes: ``R`` rows, ``S`` positions, ``E`` recorded ids a position; the others as in ``language_model``.
"""

import dataclasses

import jax
import jax.numpy as jnp

from sbjax.language_model import CacheSpec, Forward

RECORDED, VOCABULARY = 64, 512
"""Recorded ids a position, and ranks there are; the mass of all other ids is spread over the rest."""


_NOTHING = CacheSpec(layers=0, kv_heads=1, head_dim=1)


@dataclasses.dataclass(frozen=True)
class _Recorded:
    """Where a forward is: row and position; what is said there is looked up by ``logits``."""

    max_length: int
    vocab_size: int = VOCABULARY
    cache_spec: CacheSpec = _NOTHING

    def forward(self, params, tokens, positions, cache, mask=None, *, features=0) -> Forward:
        """See ``LanguageModel.forward``."""
        del tokens, mask
        rows = jnp.broadcast_to(jnp.arange(positions.shape[0], dtype=jnp.int32)[:, None], positions.shape)
        place = jnp.minimum(positions, self.max_length - 1)
        hidden = jnp.stack([rows, place], -1).astype(jnp.float32)
        states = params["features"][rows, place, :features] if features else None
        return Forward(hidden, states, cache)


@dataclasses.dataclass(frozen=True)
class RecordedTarget(_Recorded):
    """Says the recorded text.

    Parameters: ``script [R, S]`` int32, the rank of the token behind every position, and where H-RAD is to
    be replayed ``features [R, S, F, D]``, the last of which is the embedding of that token.
    """

    width: int = 1

    def logits(self, params, hidden):
        """See ``LanguageModel.logits``."""
        index = hidden.astype(jnp.int32)
        said = params["script"][index[..., 0], index[..., 1]]
        return 100 * jax.nn.one_hot(said, self.vocab_size, dtype=jnp.float32)

    def embed(self, params, tokens):
        """Nothing: a rank has no embedding; that of the token is among the features."""
        del params
        return jnp.zeros((*tokens.shape, self.width), jnp.float32)


@dataclasses.dataclass(frozen=True)
class RecordedDraft(_Recorded):
    """Says what the draft said. Parameters: ``rows [R, S, E]`` float32, log-probabilities, best first."""

    def logits(self, params, hidden):
        """See ``LanguageModel.logits``."""
        index = hidden.astype(jnp.int32)
        best = params["rows"][index[..., 0], index[..., 1]]
        others = self.vocab_size - best.shape[-1]
        rest = jnp.log(jnp.maximum(1 - jnp.exp(best).sum(-1, keepdims=True), 1e-9) / others)
        return jnp.concatenate([best, jnp.repeat(rest, others, -1)], -1)
