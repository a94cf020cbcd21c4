"""From rows of logits to picks, for Hopper GPUs.

A program takes a share of one row: pieces of it are copied to shared memory ahead of their use, noise is
made in registers (threefry, as ``jax.random.gumbel`` does it), and every thread keeps its best score and
the smallest token that has it. The shares of a row are merged in plain jax.numpy; the maximum does not depend
on the order. Noise of rows at temperature 0 is not made. Nothing of the size of the vocabulary is written.

Where the cut of top-k and top-p lies is found beforehand with ``reference.cut``: a row of logits does not fit
into one processor's memory, so a search of 31 halvings inside would read it that often anyway. The kernel
gets the lowest logit that is kept. Where no row asks for a cut, nothing is done.

Cost, for ``n = B T V`` logits: ``4 n`` bytes, and with noise about 110 operations each (20 rounds of
threefry at 3, the keys, two logarithms). 8 rows of 8 positions of 151,936 are 39 MB, 8 us at the 4.8 TB/s of
an H200, the floor of a greedy pick; and 1.1 G operations, 65 us at 64 integers a clock on each of 132
processors at 2 GHz, the floor with noise. The tensor cores have no part in it. Axes: as in ``reference``.
"""

import itertools

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from kernels_pallas import gpu
from kernels_pallas.verify import reference
from kernels_pallas.verify.threefry import gumbel

PIECE = 1024
"""Logits of a copy, eight for a thread."""

STAGES = 3
"""Pieces in shared memory at once."""

PROGRAMS = 1056
"""Programs to aim at: eight for each of the 132 processors."""


def refusal(logits: jax.Array | jax.ShapeDtypeStruct, *, vocab_size: int | None = None) -> str | None:
    """Why this version does not apply to logits ``[B, T, V]``, in a sentence; None if it does."""
    if len(logits.shape) != 3 or logits.dtype != jnp.float32:
        return f"it takes float32 [B, T, V], logits are {logits.dtype}{list(logits.shape)}"
    if 0 in logits.shape:
        return f"logits of shape {list(logits.shape)} hold nothing"
    columns = logits.shape[-1]
    if columns % 16 or columns < PIECE:
        return f"rows have a multiple of 16 logits and {PIECE} at least, not {columns}"
    if vocab_size is not None and not 0 < vocab_size <= columns:
        return f"vocab_size is {vocab_size}, logits have {columns} columns"
    if not jax.config.jax_threefry_partitionable:
        return "it makes the noise of jax_threefry_partitionable=True"
    return None


def picks(
    logits: jax.Array,
    keys: jax.Array,
    temperature: jax.Array,
    top_k: jax.Array,
    top_p: jax.Array,
    *,
    noise: jax.Array | None = None,
    log_probs: bool = False,
    vocab_size: int | None = None,
    interpret: gpu.Interpret = False,
) -> reference.Picked:
    """Picks a token for every row of logits.

    Args:
      logits: ``[B, T, V]`` float32.
      keys: ``[B, T, 2]`` uint32, threefry keys of the positions (``jax.random.key_data``).
      temperature: ``[B]`` float32, 0 is greedy.
      top_k: ``[B]`` int32, 0 keeps every token.
      top_p: ``[B]`` float32, 1 keeps every token.
      noise: ``[B, T, V]`` float32, what ``reference.gumbel`` makes of the keys, where it is at hand.
      log_probs: whether to return log-probabilities.
      vocab_size: how many columns count, the first ones; None is all.
      interpret: see ``gpu.Interpret``.

    Raises:
      ValueError: with the reason of ``refusal``.
    """
    if reason := refusal(logits, vocab_size=vocab_size):
        raise ValueError(f"verify for gpu: {reason}")
    _, t, v = logits.shape
    vocab = v if vocab_size is None else vocab_size
    lowest = _lowest_kept(logits, temperature, top_k, top_p, vocab)
    rows = keys, jnp.repeat(temperature, t), lowest
    token, score, top, bad, mass = _shares(logits, rows, noise, vocab, log_probs, interpret)
    best = score.max(-1)
    token = jnp.minimum(jnp.where(score == best[..., None], token, vocab).min(-1), vocab - 1)
    invalid = (bad.max(-1) > 0) | (top.max(-1) == -jnp.inf)
    if not log_probs:
        return reference.Picked(token, best, invalid, None)
    chosen = jnp.take_along_axis(logits, token[..., None], -1)[..., 0]
    return reference.Picked(token, best, invalid, chosen - jax.nn.logsumexp(top + jnp.log(mass), axis=-1))


def _lowest_kept(logits, temperature, top_k, top_p, vocab: int) -> jax.Array:
    """``[B, T]`` float32: the lowest logit that top-k and top-p leave, minus infinity where nobody asks.

    Not the cut logits: a condition that may return its operand copies it.
    """

    def search(x):
        x = jnp.where(lax.broadcasted_iota(jnp.int32, x.shape, 2) < vocab, x, -jnp.inf)
        cut = reference.cut(x, temperature, top_k, top_p)
        return jnp.where(cut > -jnp.inf, cut, jnp.inf).min(-1)

    def everything(x):
        return jnp.full(x.shape[:2], -jnp.inf, jnp.float32)

    wanted = jnp.any(reference.cuts(temperature, top_k, top_p, vocab))
    return lax.cond(wanted, search, everything, logits)


def _shares(logits, rows, noise, vocab: int, log_probs: bool, interpret):
    """Per share of a row ``[B, T, shares]``: token, score, largest logit, whether one is bad, mass."""
    b, t, v = logits.shape
    lanes = next(lanes for lanes in (128, 64, 32, 16) if v % lanes == 0)
    pieces = -(-v // PIECE)
    shares = max(1, min(PROGRAMS // (b * t), pieces))
    keys, temperature, lowest = rows
    wide = [x.reshape(b * t, v // lanes, lanes) for x in (logits, noise) if x is not None]
    staged = gpu.shared((STAGES, PIECE // lanes, lanes), jnp.float32)
    results = [jax.ShapeDtypeStruct((b * t, shares), jnp.dtype(x)) for x in ("i4", "f4", "f4", "i4", "f4")]
    out = gpu.launch(
        _kernel(vocab, noise is not None, log_probs, interpret),
        (*wide, keys.reshape(b * t, 2), temperature, lowest.reshape(b * t)),
        results,
        [staged] * len(wide) + [gpu.Barrier(num_barriers=STAGES)] * len(wide),
        {"row": b * t, "share": shares},
        cost=pl.CostEstimate(
            flops=110 * b * t * vocab, transcendentals=2 * b * t * vocab, bytes_accessed=4 * b * t * vocab
        ),
        interpret=interpret,
    )
    return [x.reshape(b, t, shares) for x in out]


def _kernel(vocab: int, given: bool, log_probs: bool, interpret):
    """The program of a share of a row; ``given`` tells whether noise is an operand."""

    def picks(*refs):
        refs, count = iter(refs), 1 + given
        inputs, (keys, temperature, lowest), out, held, there = (
            list(itertools.islice(refs, n)) for n in (count, 3, 5, count, count)
        )
        row, share = lax.axis_index("row"), lax.axis_index("share")
        _, lines, lanes = inputs[0].shape
        height, shares = held[0].shape[1], out[0].shape[1]
        pieces = -(-lines // height)
        begin, stop = (lax.div((share + i) * pieces, shares) for i in (0, 1))
        layout = gpu.flat((height, lanes), 2)
        key, heat, floor = (keys[row, 0], keys[row, 1]), temperature[row], lowest[row]

        def line(piece):
            # The last piece begins early enough to be whole.
            return jnp.minimum(piece * height, lines - height)

        def fetch(piece):
            stage = lax.rem(piece, STAGES)
            for x, y, barrier in zip(inputs, held, there, strict=True):
                gpu.copy_in(x.at[row, pl.ds(line(piece), height)], y.at[stage], barrier.at[stage])

        def fold(piece, state):
            stage = lax.rem(piece, STAGES)
            for barrier in there:
                gpu.wait(barrier.at[stage])
            x, *noise = (gpu.load(y, stage, layout, interpret) for y in held)
            place = [gpu.iota((height, lanes), axis, layout, interpret) for axis in (0, 1)]
            token = (place[0] + line(piece)) * lanes + place[1]
            x = jnp.where((token >= piece * (height * lanes)) & (token < vocab), x, -jnp.inf)
            drawn = noise[0] if given else _noise(key, heat, token, layout, interpret)
            pl.when(piece + STAGES < stop)(lambda: fetch(piece + STAGES))
            return _fold(x, jnp.where(x >= floor, x + heat * drawn, -jnp.inf), token, state, log_probs)

        for ahead in range(STAGES):
            pl.when(begin + ahead < stop)(lambda ahead=ahead: fetch(begin + ahead))
        state = lax.fori_loop(begin, stop, fold, _nothing((height, lanes), vocab, layout, interpret))
        for ref, result in zip(out, _result(state, vocab), strict=True):
            ref[row, share] = result

    return picks


def _nothing(shape, vocab: int, layout, interpret):
    """Best score and its token, largest logit, whether one is not a number, mass: of no logits."""
    start = ((-jnp.inf, "f4"), (vocab, "i4"), (-jnp.inf, "f4"), (0, "i4"), (0, "f4"))
    return tuple(gpu.laid_out(jnp.full(shape, x, jnp.dtype(dtype)), layout, interpret) for x, dtype in start)


def _fold(logits, scores, token, state, log_probs: bool):
    """Adds one piece to what every thread keeps."""
    best, chosen, top, bad, mass = state
    better = scores > best
    new = jnp.maximum(top, logits)
    if log_probs:
        safe = jnp.where(new == -jnp.inf, 0.0, new)
        mass = mass * jnp.exp(top - safe) + jnp.exp(logits - safe)
    bad = jnp.where(logits < jnp.inf, bad, 1)
    return jnp.where(better, scores, best), jnp.where(better, token, chosen), new, bad, mass


def _result(state, vocab: int):
    """One number of each kind for all threads, in the order of the outputs."""
    best, chosen, top, bad, mass = state
    score, highest = best.max(), top.max()
    token = jnp.where(best == score, chosen, vocab).min()
    safe = jnp.where(highest == -jnp.inf, 0.0, highest)
    return token, score, highest, bad.max(), (mass * jnp.exp(top - safe)).sum()


def _noise(key, temperature, token, layout, interpret):
    """What ``jax.random.gumbel`` draws at the places ``token``; zeros, at no cost, at temperature 0."""

    def draw():
        return gumbel(key, lax.bitcast_convert_type(token, jnp.uint32))

    def none():
        return gpu.laid_out(jnp.zeros(token.shape, jnp.float32), layout, interpret)

    return lax.cond(temperature > 0, draw, none)
