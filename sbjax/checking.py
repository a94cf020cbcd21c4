"""The target's part of a round: one forward over the pending token and the trunk.

Everything of the vocabulary's size stays inside; what comes out is a few numbers a position. (The token
and the block rule need the rows themselves, and get them.)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sbjax import scores
from sbjax.branch_cache import SuffixCache, adopt
from sbjax.cache import KVCache, after
from sbjax.engine import Engine
from sbjax.indexing import span
from sbjax.language_model import Params
from sbjax.scores import Sampling
from sbjax.verification import Outcome, SharedNoise


class Question(NamedTuple):
    """What the target is asked.

    Attributes:
      tokens: ``[B, T]`` int32, the pending token and the trunk.
      trunk: ``[B]`` int32, length of the trunk, at most ``T - 1``.
      length: ``[B]`` int32, committed tokens, the pending one included.
    """

    tokens: jax.Array
    trunk: jax.Array
    length: jax.Array


class Checked(NamedTuple):
    """What the target says about the ``T`` positions behind the text.

    Attributes:
      picks: ``[B, T]`` int32, its own tokens under the shared noise; None under the other rules.
      outcome: what they decide; None under the other rules.
      logits: ``[B, T, V]`` float32; None under the shared-noise rule.
      invalid: ``[B, T]`` bool, rows of which nothing can be picked.
      log_probs: ``[B, T]`` float32, of the picks, if they are recorded under the shared-noise rule.
      features: ``[B, T, F, D]``, hidden states of the last layers where a method asks for them.
      width: ``[]`` int32, which of the engine's widths was used.
    """

    picks: jax.Array | None
    outcome: Outcome | None
    logits: jax.Array | None
    invalid: jax.Array
    log_probs: jax.Array | None
    features: jax.Array | None
    width: jax.Array


def check(
    engine: Engine,
    params: Params,
    question: Question,
    cache: KVCache,
    shared: SharedNoise | None,
    sampling: Sampling,
) -> tuple[Checked, KVCache]:
    """Runs the target in the smallest width that holds the longest trunk.

    Args:
      engine: the static part.
      params: the target's parameters.
      question: what to check; ``T`` is the engine's largest width.
      cache: the target's, all but the pending token of every row read.
      shared: noise of the ``R >= T`` positions behind the text; or None.
      sampling: settings of the rows.

    Returns:
      What was found, and the cache with the new tokens behind the text.
    """
    widths = engine.target_widths
    if engine.rule != "match":
        widths = widths[-1:]

    def run(width: int):
        return lambda: _run(engine, params, question, cache, shared, sampling, width)

    fits = jnp.max(question.trunk) + 1 > jnp.array(widths[:-1], jnp.int32)
    chosen = jnp.sum(fits).astype(jnp.int32)
    if len(widths) == 1:
        checked, suffix, hidden = run(widths[0])()
    else:
        checked, suffix, hidden = jax.lax.switch(chosen, [run(width) for width in widths])
    used = chosen + len(engine.target_widths) - len(widths)
    return checked._replace(width=used), adopt(cache, suffix, after(question.length - 1, hidden))


def _run(engine: Engine, params, question: Question, cache, shared, sampling: Sampling, width: int):
    """A forward of ``width`` tokens, its results padded to the full width."""
    full = question.tokens.shape[1]
    text = SuffixCache.of_one_forward(cache, question.length - 1)
    positions = span(question.length - 1, width)
    out = engine.target.forward(
        params, question.tokens[:, :width], positions, text, features=engine.method.features
    )
    logits = engine.target.logits(params, out.hidden)
    if engine.rule == "match":
        noise = jax.tree.map(lambda leaf: leaf[:, :width], shared)
        options = {"vocab_size": engine.vocab_size, "log_probs": engine.log_probs}
        # Of a trunk that is longer than this width allows the outcome is not used: another width is taken.
        trunk = question.tokens[:, 1:width], jnp.minimum(question.trunk, width - 1)
        picked, *outcome = scores.verify(logits, noise, sampling, *trunk, **options)
        outcome, logits = Outcome(*outcome), None
    else:
        logits, outcome = logits[..., : engine.vocab_size], None
        picked = scores.Picked(None, None, scores.invalid(logits), None)
    checked = Checked(
        picks=widen(picked.token, full),
        outcome=outcome,
        logits=widen(logits, full),
        invalid=widen(picked.invalid, full),
        log_probs=widen(picked.log_prob, full),
        features=widen(out.features, full),
        width=jnp.int32(0),
    )
    suffix = out.cache.replace(prefix=None)
    widened = jax.tree.map(lambda leaf: widen(leaf, full, 2), (suffix.keys, suffix.values))
    suffix = suffix.replace(keys=widened[0], values=widened[1])
    return checked, suffix, out.hidden[:, :1, :1]


def widen(leaf: Any, full: int, axis: int = 1):
    """Zeros behind the tokens of a narrower forward."""
    if leaf is None:
        return None
    pad = [(0, 0)] * leaf.ndim
    pad[axis] = (0, full - leaf.shape[axis])
    return jnp.pad(leaf, pad)
