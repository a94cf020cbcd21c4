"""The kernels that can be tuned: for a call, the arrays, the key of the table, the candidates, their cost."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from kernel_tuning import samples
from kernel_tuning.chips import Chip
from kernel_tuning.cost_model import BUNDLE_BYTES, Attention, attention_seconds, verify_seconds
from kernel_tuning.shapes import Call
from kernels_pallas import tuning
from kernels_pallas.block_table import Blocks, wrong
from kernels_pallas.branch_attention import mosaic_gpu as gpu_attention
from kernels_pallas.branch_attention import mosaic_tpu as tpu_attention
from kernels_pallas.verify import mosaic_tpu as tpu_verify

Program = tuple[Blocks, int]
"""Blocks, and the bytes of the code that they are compiled to."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A kernel and a shape to find blocks for.

    Attributes:
      kernel: as in the table.
      shape: the key of the table.
      arguments: shapes and dtypes of the kernel's arguments.
      candidates: blocks to choose from, all valid; the first are the kernel's default.
      run: from blocks to a function of the arguments.
      sample: how arguments to measure with are made.
      bound: from a chip and blocks to the seconds that they take at least, by the cost model; None where
        there is no model.
      cost: from a chip and two programs, blocks with the bytes of their code, to the seconds of the first.
      small: the candidate whose program the others are compared with, for the second.
    """

    kernel: str
    shape: str
    arguments: Sequence[jax.ShapeDtypeStruct]
    candidates: Sequence[Blocks]
    run: Callable[[Blocks], Callable[..., Any]]
    sample: samples.Sample
    bound: Callable[[Chip, Blocks], float] | None = None
    cost: Callable[[Chip, Program, Program], float] | None = None
    small: Blocks | None = None


def make_problem(kernel: str, platform: str, call: Call) -> Problem:
    """What has to be found for a call.

    Args:
      kernel: of ``KERNELS``.
      platform: "tpu" or "gpu".
      call: its sizes.

    Raises:
      ValueError: the kernel is not for this platform or not for such sizes.
    """
    found = KERNELS.get((kernel, platform))
    if found is None:
        raise ValueError(f"{kernel} has nothing to tune for {platform}")
    return found(call)


def _attention_on_tpu(call: Call) -> Problem:
    model, arguments = call.model, _attention_arguments(call)
    _refused(tpu_attention.refusal(arguments[0], arguments[1], arguments[5]))
    itemsize = jnp.dtype(call.dtype).itemsize
    queries = _up(model.n // model.m * call.tokens * call.branches, 32 // itemsize)
    own = _up(call.own * call.branches, 128)
    shape = tuning.shape_key(call.dtype, queries=queries, own=own, h=model.h, s=call.slots)
    largest = tpu_attention._dividing(tpu_attention.Blocks().slots, call.slots)
    sizes = [slots for slots in range(128, call.slots + 1, 128) if call.slots % slots == 0]
    candidates = [{"slots": slots} for slots in sorted(sizes, key=lambda slots: slots != largest)]
    size = Attention(queries, model.h, call.slots, itemsize, call.rows * model.m)

    def cost(chip: Chip, program: Program, other: Program) -> float:
        (blocks, code), (others, others_code) = program, other
        cycles = (code - others_code) / BUNDLE_BYTES / ((blocks["slots"] - others["slots"]) or 1)
        return attention_seconds(chip, size, blocks["slots"], cycles)

    return Problem(
        "branch_attention/tpu",
        shape,
        arguments,
        _valid("branch_attention/tpu", shape, candidates),
        lambda blocks: _attention(tpu_attention, call, blocks),
        samples.ATTENTION,
        lambda chip, blocks: attention_seconds(chip, size, blocks["slots"]),
        cost,
        {"slots": sizes[0]},
    )


def _attention_on_gpu(call: Call) -> Problem:
    model, arguments = call.model, _attention_arguments(call)
    _refused(gpu_attention.refusal(arguments[0], arguments[1], arguments[5]))
    queries = _up(model.n // model.m * call.tokens * call.branches, gpu_attention.QUERIES)
    shape = tuning.shape_key(call.dtype, queries=queries, h=model.h, s=call.slots)
    sizes = [{"slots": slots, "stages": stages} for slots in (64, 128) for stages in (2, 3, 4)]
    return Problem(
        "branch_attention/gpu",
        shape,
        arguments,
        _valid("branch_attention/gpu", shape, sizes),
        lambda blocks: _attention(gpu_attention, call, blocks),
        samples.ATTENTION,
    )


def _verify_on_tpu(call: Call) -> Problem:
    vocab, positions = call.model.v, (call.rows, call.tokens)
    arguments = [
        jax.ShapeDtypeStruct((*positions, vocab), jnp.float32),
        jax.ShapeDtypeStruct((*positions, 2), jnp.uint32),
        *(jax.ShapeDtypeStruct((call.rows,), dtype) for dtype in (jnp.float32, jnp.int32, jnp.float32)),
    ]
    _refused(tpu_verify.refusal(arguments[0]))
    # Longer ones make programs that are refused for their length.
    chunks = sorted(range(512, 3 * tpu_verify.CHUNK + 1, 512), key=lambda chunk: chunk != tpu_verify.CHUNK)
    shape = tuning.shape_key(v=vocab)
    return Problem(
        "verify/tpu",
        shape,
        arguments,
        _valid("verify/tpu", shape, [{"chunk": chunk} for chunk in chunks]),
        lambda blocks: functools.partial(tpu_verify.picks, **blocks),
        samples.VERIFY,
        lambda chip, blocks: verify_seconds(chip, vocab, blocks["chunk"]),
        lambda chip, program, _: verify_seconds(chip, vocab, program[0]["chunk"], program[1]),
    )


KERNELS = {
    ("branch_attention", "tpu"): _attention_on_tpu,
    ("branch_attention", "gpu"): _attention_on_gpu,
    ("verify", "tpu"): _verify_on_tpu,
}


def _attention_arguments(call: Call) -> list[jax.ShapeDtypeStruct]:
    """Of a call by the branches as queries, as ``folding`` makes it."""
    model, own, tokens = call.model, call.own * call.branches, call.tokens * call.branches
    cache = jax.ShapeDtypeStruct((call.rows, model.m, call.slots, model.h), call.dtype)
    new = jax.ShapeDtypeStruct((call.rows, model.m, own, model.h), call.dtype)
    bound = jax.ShapeDtypeStruct((call.rows, tokens), jnp.int32)
    query = jax.ShapeDtypeStruct((call.rows, tokens, model.n, model.h), call.dtype)
    visible = jax.ShapeDtypeStruct((call.rows, tokens, own), jnp.bool_)
    return [query, cache, cache, bound, bound, new, new, visible]


def _attention(backend, call: Call, blocks: Blocks) -> Callable[..., Any]:
    return functools.partial(backend.attention, scale=call.model.h**-0.5, blocks=backend.Blocks(**blocks))


def _valid(kernel: str, shape: str, candidates: Sequence[Blocks]) -> list[Blocks]:
    valid = [blocks for blocks in candidates if wrong(kernel, shape, {"blocks": blocks}) is None]
    if not valid:
        raise ValueError(f"{kernel} has no blocks that fit {shape}")
    return valid


def _refused(reason: str | None) -> None:
    if reason:
        raise ValueError(f"the kernel does not apply: {reason}")


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
