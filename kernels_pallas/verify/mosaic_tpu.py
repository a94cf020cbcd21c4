"""``reference.picks`` as one TPU kernel: logits are read from HBM once, nothing of size V is written.

The positions of all rows are laid side by side as R = B T lines, so that few positions of many rows fill
the sublanes of a vector register too. A block of 8 lines and the whole vocabulary lies in VMEM and is walked
there: for the maximum; for the log-sum-exp if asked; for the bisections of the cut if a line of the block
wants any; and once to make the noise (only if some temperature is positive), score and keep the best.
``chunk`` changes no bit of a result. A pick is the reference's up to the last bit of the chip's logarithm.
Make logits as ``[B T, D] x [D, V]``: unless T is 1 or a multiple of 8, XLA moves ``[B, T, V]`` first.

Counted per logit, for full blocks (a block of fewer lines takes as long as one of 8):

- bytes: 4, the logit itself; everything else is 48 bytes a line.
- operations: 4 for the maximum, 5 for a greedy pick, 8 for the log-sum-exp. A sample: 116 for threefry (20
  rounds of add, rotate = 3, exclusive or; 5 times 3 for the keys; the last exclusive or), 4 for the uniform,
  10 for the logarithms, 7 for score and comparison: 137. A cut: 12 for tempering, 31 x 3 for each bisection,
  11 to turn what they find into a logit: 209 with both.

Rates assumed: v5e 8 x 128 lanes x 4 slots (as in the compiler's schedules) x 1.5 GHz = 6.1 T op/s; v6e the
same at 1.75 GHz = 7.2 T op/s; H200 132 x 64 int32 lanes x 1.98 GHz = 16.7 T op/s, a rotation being one
operation there. Floors for 8 lines of 151,936 logits, 4.86 MB; in brackets what libtpu 0.0.42 schedules
(bundles of the loops at that clock, nothing was measured on a chip):

====  =======  ============  =============  =============
chip  bytes    greedy        sample         sample, cut
====  =======  ============  =============  =============
v5e   5.9 us   1.8 (1.8) us  28 (28) us     70 (110) us
v6e   3.0 us   1.5 (1.5) us  24 (24) us     59 (95) us
H200  1.0 us   0.7 us        7 us           23 us
====  =======  ============  =============  =============

So greedy picks are bound by memory, samples by the integer work of their noise.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from kernels_pallas import tpu, tuning
from kernels_pallas.verify.mosaic_tpu_kernel import COUNT, MASS, NOISE, kernel
from kernels_pallas.verify.mosaic_tpu_walk import UNIT, Plan
from kernels_pallas.verify.reference import Picked, cuts

LINES = 8
CHUNK = 4 * UNIT
SAMPLING_OPERATIONS, LINE_BYTES = 141, 48
VMEM_BYTES = 64 * 2**20
"""What a block may take: all of a v5p's VMEM, half of a v5e's or v6e's."""


class Part(NamedTuple):
    """The pick of a vocabulary shard, and what ``combine`` needs of it.

    Attributes:
      token: ``[B, T]`` int32, index in the whole vocabulary.
      score: ``[B, T]`` float32; plus infinity if a line holds NaN or plus infinity, minus infinity if it
        holds nothing finite.
      invalid: ``[B, T]`` bool, as in ``Picked``, of the shard alone.
      logit: ``[B, T]`` float32, of the pick; None without ``log_probs``.
      log_sum: ``[B, T]`` float32, log-sum-exp of the shard's logits; None without ``log_probs``.
    """

    token: jax.Array
    score: jax.Array
    invalid: jax.Array
    logit: jax.Array | None
    log_sum: jax.Array | None


def picks(logits, keys, temperature, top_k, top_p, **options) -> Picked:
    """Picks a token for every position; arguments as of ``part``, the result as of ``reference.picks``.

    Scores of invalid lines are those of ``Part``.
    """
    return _picked(part(logits, keys, temperature, top_k, top_p, **options))


def part(
    logits: jax.Array,
    keys: jax.Array,
    temperature: jax.Array,
    top_k: jax.Array,
    top_p: jax.Array,
    *,
    log_probs: bool = False,
    vocab_size: int | None = None,
    first: int | jax.Array = 0,
    thresholds: jax.Array | None = None,
    chunk: int | None = None,
    interpret: tpu.Interpret = False,
) -> Part:
    """Picks from logits that may be a shard of the vocabulary.

    Args:
      logits: ``[B, T, V]`` float32.
      keys: ``[B, T, 2]`` uint32, threefry keys of the positions.
      temperature: ``[B]`` float32, 0 is greedy.
      top_k: ``[B]`` int32, 0 keeps every token.
      top_p: ``[B]`` float32, 1 keeps every token.
      log_probs: whether to return what log-probabilities need.
      vocab_size: how many columns count, the first ones; all by default.
      first: index of column 0 in the whole vocabulary, an integer or ``[]`` int32.
      thresholds: ``[B, T]`` float32, the logit below which tokens are cut; minus infinity cuts nothing. Then
        ``top_k`` and ``top_p`` are not looked at. A shard needs them wherever a row wants a cut: without them
        it would cut by what it holds itself.
      chunk: columns per step of the walks, a multiple of 512; None takes that of ``tuning``, else 2048.
      interpret: how the kernel runs, see ``tpu.Interpret``.

    Raises:
      ValueError: what ``refusal`` says, or ``chunk`` is no multiple of 512.
    """
    if why := refusal(logits, vocab_size=vocab_size):
        raise ValueError(f"verify for tpu: {why}")
    batch, length, columns = logits.shape
    vocab = vocab_size or columns
    if chunk is None:
        chunk = (tuning.block_shapes("verify/tpu", tuning.shape_key(v=vocab)) or {}).get("chunk", CHUNK)
    if chunk <= 0 or chunk % UNIT:
        raise ValueError(f"chunk is {chunk}, it must be a multiple of {UNIT}")
    plan = Plan(min(LINES, batch * length), vocab, chunk, log_probs, thresholds is not None)
    modes, ints, floats = _settings(plan, keys, temperature, top_k, top_p, thresholds)
    token, found = _call(plan, logits.reshape(-1, columns), modes, first, ints, floats, interpret)
    lines = (batch, length)
    token = token[: batch * length, 0].reshape(lines)
    score, best, logit, log_sum = (found[: batch * length, i].reshape(lines) for i in range(4))
    wrong = jnp.isinf(best)
    return Part(
        token, jnp.where(wrong, best, score), wrong, *((logit, log_sum) if log_probs else (None, None))
    )


def combine(parts: Sequence[Part] | Part) -> Picked:
    """The picks of a vocabulary from those of its shards: the best score, then the smallest index.

    Args:
      parts: a sequence of parts, or one part whose arrays are stacked, ``[shards, B, T]``.
    """
    if not isinstance(parts, Part):
        parts = jax.tree.map(lambda *arrays: jnp.stack(arrays), *parts)
    leading = parts.score == parts.score.max(0, keepdims=True)
    token = jnp.where(leading, parts.token, jnp.iinfo(jnp.int32).max).min(0)
    won = leading & (parts.token == token[None])
    # A shard with NaN or plus infinity leads; one with nothing finite leads only if none has anything.
    best = Part(token, parts.score.max(0), jnp.any(won & parts.invalid, 0), None, None)
    if parts.log_sum is not None:
        logit = jnp.where(won, parts.logit, -jnp.inf).max(0)
        best = best._replace(logit=logit, log_sum=jax.nn.logsumexp(parts.log_sum, axis=0))
    return _picked(best)


def refusal(logits: jax.Array | jax.ShapeDtypeStruct, *, vocab_size: int | None = None) -> str | None:
    """Why this version does not apply to logits ``[B, T, V]``, in one sentence; None if it does."""
    if len(logits.shape) != 3 or logits.dtype != jnp.float32:
        return f"logits are {logits.dtype}{list(logits.shape)}, the TPU kernel takes float32 [B, T, V]"
    if 0 in logits.shape:
        return f"logits of shape {list(logits.shape)} hold nothing"
    if vocab_size is not None and not 0 < vocab_size <= logits.shape[-1]:
        return f"vocab_size is {vocab_size}, logits have {logits.shape[-1]} columns"
    if _vmem_bytes(logits.shape[-1]) > VMEM_BYTES:
        return f"8 lines of {logits.shape[-1]} logits and their cut do not fit {VMEM_BYTES >> 20} MiB of VMEM"
    if not jax.config.jax_threefry_partitionable:
        return "the TPU kernel makes the noise of jax_threefry_partitionable=True"
    return None


def _picked(part: Part) -> Picked:
    log_prob = None if part.log_sum is None else part.logit - part.log_sum
    return Picked(part.token, part.score, part.invalid, log_prob)


def _vmem_bytes(columns: int) -> int:
    """Two buffers for logits, one for what is tempered, one for its mass; 4 MiB for all that is small."""
    return 4 * LINES * 4 * pl.cdiv(columns, 128) * 128 + 4 * 2**20


def _settings(plan, keys, temperature, top_k, top_p, thresholds):
    """Modes ``[blocks]``, and for every line ``[blocks * lines, 4]`` of int32 and of float32."""
    batch, length, _ = keys.shape
    limited = (top_k > 0) & (top_k < plan.vocab)
    wanted = cuts(temperature, top_k, top_p, plan.vocab) & (not plan.given)
    mode = jnp.where(temperature > 0, NOISE, 0) | jnp.where(wanted & limited, COUNT, 0)
    mode = mode | jnp.where(wanted & (top_p < 1), MASS, 0)
    count = jnp.where(top_k > 0, top_k, plan.vocab)
    if thresholds is None:
        thresholds = jnp.full((batch, length), -jnp.inf, jnp.float32)

    def lines(*columns):
        spread = [x if x.ndim == 2 else jnp.broadcast_to(x[:, None], (batch, length)) for x in columns]
        packed = jnp.stack(spread, -1).reshape(batch * length, -1)
        return jnp.pad(packed, ((0, -len(packed) % plan.lines), (0, 0)))  # temperature 0: costs nothing

    key = jax.lax.bitcast_convert_type(keys, jnp.int32)
    ints = lines(key[..., 0], key[..., 1], count, mode.astype(jnp.int32))
    modes = jax.lax.reduce(ints[:, 3].reshape(-1, plan.lines), jnp.int32(0), jax.lax.bitwise_or, (1,))
    return modes, ints, lines(temperature, top_p, thresholds)


def _call(plan, logits, modes, first, ints, floats, interpret):
    """Runs the kernel on logits ``[R, V]``: tokens ``[blocks * lines, 1]``, what it found ``[.., 4]``."""
    columns, blocks = logits.shape[1], len(modes)

    def block(width):
        return pl.BlockSpec((plan.lines, width), lambda i, *_: (i, 0))

    scratch = [] if plan.given else [tpu.VMEM((plan.lines, columns), jnp.float32)] * 2
    return pl.pallas_call(
        functools.partial(kernel, plan),
        grid_spec=tpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(blocks,),
            in_specs=[block(columns), block(4), block(3)],
            out_specs=[block(1), block(4)],
            scratch_shapes=scratch,
        ),
        out_shape=[
            jax.ShapeDtypeStruct((len(ints), 1), jnp.int32),
            jax.ShapeDtypeStruct((len(ints), 4), jnp.float32),
        ],
        compiler_params=tpu.compiler_params("parallel", vmem_bytes=_vmem_bytes(columns)),
        cost_estimate=_cost(plan, len(ints)),
        interpret=interpret,
        name="verify",
    )(modes, jnp.asarray(first, jnp.int32).reshape(1), logits, ints, floats)


def _cost(plan: Plan, lines: int) -> pl.CostEstimate:
    """For a draw without a cut, since settings are not known when the program is scheduled."""
    logits = lines * plan.vocab
    return pl.CostEstimate(
        flops=logits * (SAMPLING_OPERATIONS + 8 * plan.log_probs),
        transcendentals=logits * (2 + plan.log_probs),
        bytes_accessed=4 * logits + LINE_BYTES * lines,
    )
