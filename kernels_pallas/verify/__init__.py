"""From rows of logits to the target's picks, and how much of a trunk they confirm."""

import functools
from typing import NamedTuple

import jax

from kernels_pallas.dispatch import Version, dispatch
from kernels_pallas.partitioning import partitioned
from kernels_pallas.verify import mosaic_gpu, mosaic_tpu, reference
from kernels_pallas.verify.reference import Picked

__all__ = ["Picked", "Verified", "picks", "verify"]


class Verified(NamedTuple):
    """What a verification finds.

    Attributes:
      picked: the target's own tokens at the ``T`` positions.
      accepted: ``[B]`` int32, how many trunk tokens they confirm.
      token: ``[B]`` int32, the pick behind those.
    """

    picked: Picked
    accepted: jax.Array
    token: jax.Array


def verify(
    logits: jax.Array,
    keys: jax.Array,
    temperature: jax.Array,
    top_k: jax.Array,
    top_p: jax.Array,
    trunk: jax.Array,
    length: jax.Array,
    **options,
) -> Verified:
    """Picks at every position and accepts trunk tokens while they equal the picks.

    Args:
      logits: ``[B, T, V]`` float32, of the positions behind the pending token and every trunk token.
      keys: see ``picks``, like the next three.
      temperature: ``[B]``.
      top_k: ``[B]``.
      top_p: ``[B]``.
      trunk: ``[B, T - 1]`` int32.
      length: ``[B]`` int32, how many trunk tokens count, at most ``T - 1``.
      **options: of ``picks``.
    """
    picked = picks(logits, keys, temperature, top_k, top_p, **options)
    return Verified(picked, *reference.match(picked.token, trunk, length))


@functools.partial(jax.jit, static_argnames=("vocab_size", "log_probs", "implementation"))
def picks(
    logits: jax.Array,
    keys: jax.Array,
    temperature: jax.Array,
    top_k: jax.Array,
    top_p: jax.Array,
    *,
    noise: jax.Array | None = None,
    vocab_size: int | None = None,
    log_probs: bool = False,
    implementation: str | None = None,
) -> Picked:
    """Picks a token for every row of logits: cut, noise and argmax in one pass over the vocabulary.

    Args:
      logits: ``[B, T, V]`` float32.
      keys: ``[B, T, 2]`` uint32, threefry keys of the positions (``jax.random.key_data``).
      temperature: ``[B]`` float32, 0 is greedy.
      top_k: ``[B]`` int32, 0 keeps every token.
      top_p: ``[B]`` float32, 1 keeps every token.
      noise: ``[B, T, V]`` float32, what ``reference.gumbel`` makes of the keys, where it is at hand; a
        kernel makes its own.
      vocab_size: columns that count; None is all.
      log_probs: whether to return log-probabilities.
      implementation: "reference", "tpu", "gpu", or None, which takes what suits platform and shapes.

    Raises:
      ValueError: if the implementation is unknown or does not apply.
    """
    settings = {"vocab_size": vocab_size or logits.shape[-1], "log_probs": log_probs}
    versions = {
        "tpu": Version(functools.partial(_run, mosaic_tpu, **settings), _refusal(mosaic_tpu, vocab_size)),
        "gpu": Version(
            functools.partial(_run, mosaic_gpu, **settings), _refusal(mosaic_gpu, vocab_size), trusted=False
        ),
    }
    plain = functools.partial(_plain, **settings)
    return dispatch("verify", plain, versions, implementation, logits, keys, temperature, top_k, top_p, noise)


def _plain(logits, keys, temperature, top_k, top_p, noise, *, vocab_size: int, log_probs: bool) -> Picked:
    rows = logits[..., :vocab_size]
    return reference.picks(rows, keys, temperature, top_k, top_p, noise=noise, log_probs=log_probs)


def _refusal(backend, vocab_size: int | None):
    """The backend's reasons, as a function of all arguments."""
    return lambda logits, *_: backend.refusal(logits, vocab_size=vocab_size)


def _run(backend, logits, keys, temperature, top_k, top_p, noise, **settings) -> Picked:
    """Rows may lie on several devices; the vocabulary is gathered, which is less than a megabyte a row."""
    del noise
    results = ("b.",) * (4 if settings["log_probs"] else 3)

    def call(*args):
        picked = backend.picks(*args, **settings)
        return tuple(leaf for leaf in picked if leaf is not None)

    picked = partitioned(call, ("b..", "b..", "b", "b", "b"), results)(
        logits, keys, temperature, top_k, top_p
    )
    return Picked(*picked, *[None] * (4 - len(results)))
