"""What the finished pair is worth: losses, agreement, and the time of a decode step."""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pair_training.architecture import forward_logits
from sbjax.cache import KVCache
from sbjax.language_model import Params
from sbjax.models.decoder import DecoderModel

Pair = tuple[tuple[DecoderModel, Params], tuple[DecoderModel, Params]]


def compare(pair: Pair, rows: np.ndarray) -> dict[str, Any]:
    """Losses of both models on held-out text, and how much they agree about it.

    Args:
      pair: the target and the draft.
      rows: ``[B, T + 1]`` int32.

    Returns:
      ``loss`` and ``perplexity`` of each model; ``loss_by_position``, the same for each quarter of the
      row; ``greedy_agreement``, the share of positions where both choose the same token;
      ``overlap``, the mean of the sum of the smaller probabilities: the share of tokens that the best
      rule accepts at temperature 1.
    """
    (target, target_params), (draft, draft_params) = pair

    @jax.jit
    def one_row(row):
        logs = [
            jax.nn.log_softmax(forward_logits(model, params, row[None, :-1])[0])
            for model, params in ((target, target_params), (draft, draft_params))
        ]
        losses = [-jnp.take_along_axis(log, row[1:, None], axis=-1)[:, 0] for log in logs]
        same = jnp.argmax(logs[0], -1) == jnp.argmax(logs[1], -1)
        return jnp.stack(losses), same, jnp.sum(jnp.exp(jnp.minimum(*logs)), -1)

    losses, same, overlap = map(np.stack, zip(*(one_row(row) for row in rows), strict=True))
    report = {
        "tokens": int(same.size),
        "greedy_agreement": round(float(same.mean()), 4),
        "overlap": round(float(overlap.mean()), 4),
    }
    for index, name in enumerate(("target", "draft")):
        loss = losses[:, index]
        quarters = [round(float(part.mean()), 3) for part in np.array_split(loss, 4, axis=1)]
        report[name] = {
            "loss": round(float(loss.mean()), 4),
            "perplexity": round(float(np.exp(loss.mean())), 2),
            "loss_by_position": quarters,
        }
    return report


def step_milliseconds(model: DecoderModel, params: Params, *, steps: int = 64, trials: int = 5) -> float:
    """Time of one greedy decode step of a single row, the best of several compiled loops of steps."""
    slots = min(512, model.max_length)
    steps = min(steps, slots)

    @functools.partial(jax.jit, donate_argnums=1)
    def loop(params, cache):
        def body(_, carry):
            token, cache = carry
            out = model.forward(params, token, cache.length[:, None], cache)
            logits = model.logits(params, out.hidden)
            return jnp.argmax(logits, -1).astype(jnp.int32), out.cache.with_length(cache.length + 1)

        return jax.lax.fori_loop(0, steps, body, (jnp.zeros((1, 1), jnp.int32), cache))

    best = float("inf")
    for _ in range(trials + 1):  # the first one compiles, and is never the best
        cache = KVCache.create(model.cache_spec, 1, slots)
        began = time.perf_counter()
        jax.block_until_ready(loop(params, cache))
        best = min(best, time.perf_counter() - began)
    return round(1000 * best / steps, 3)
