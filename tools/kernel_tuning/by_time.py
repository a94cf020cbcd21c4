"""Measuring on the device itself: candidate and default take turns."""

import statistics
from collections.abc import Callable

import jax
import jax.numpy as jnp
from command_line.timing import seconds, turns

from kernel_tuning.kernels import Problem
from kernel_tuning.search import Refused
from kernels_pallas.block_table import Blocks

REPETITIONS = 60
"""Calls in one program, so that starting it does not count; several times the lengths of the cost model."""
TURNS = 7


def require_device() -> jax.Device:
    """The device at hand; raises ValueError where that is a CPU."""
    device = jax.devices()[0]
    if device.platform not in ("tpu", "gpu"):
        raise ValueError(
            f"there is no TPU or GPU here, only {device.device_kind}: name a chip and search by cost"
        )
    return device


def program(problem: Problem, blocks: Blocks) -> Callable[..., jax.Array]:
    """A function of a sample's ``arguments`` and ``varied`` that calls a kernel again and again."""
    call, place = problem.run(blocks), problem.sample.place

    def run(arguments, varied):
        def once(last, argument):
            # Without it a call would not depend on the one before, and could be taken out of the loop.
            given, argument, _ = jax.lax.optimization_barrier((list(arguments), argument, last))
            given[place] = argument
            leaf = jax.tree.leaves(call(*given))[0]
            return jnp.ravel(leaf)[0].astype(jnp.float32), None

        return jax.lax.scan(once, jnp.float32(0), varied)[0]

    return jax.jit(run)


def repeated(problem: Problem, blocks: Blocks) -> Callable[[], jax.Array]:
    """``program``, compiled for the device at hand, with ``REPETITIONS`` repetitions of its arguments."""
    arguments, varied = problem.sample.draw(problem.arguments, REPETITIONS)
    try:
        compiled = program(problem, blocks).lower(arguments, varied).compile()
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        raise Refused(" ".join(str(error).split())[:120]) from error
    return lambda: compiled(arguments, varied)


def meter(
    problem: Problem, prepare: Callable[[Problem, Blocks], Callable[[], jax.Array]] = repeated
) -> Callable[[Blocks], float]:
    """A function of blocks for ``search``: their seconds a call.

    The default is measured again with every candidate, and only the ratio of the medians counts: the device
    may have become slower since.

    Args:
      problem: what is tuned.
      prepare: from blocks to a function to time; raises ``Refused``.
    """
    known: dict[str, float] = {}
    default = prepare(problem, problem.candidates[0])

    def measure(blocks: Blocks) -> float:
        sides = [default, default if blocks == problem.candidates[0] else prepare(problem, blocks)]
        for side in sides:
            side().block_until_ready()
        times: dict[int, list[float]] = {0: [], 1: []}
        for index in turns((0, 1), TURNS):
            times[index].append(seconds(sides[index])[0])
        plain, found = (statistics.median(times[index]) / REPETITIONS for index in (0, 1))
        return known.setdefault("default", plain) * (1.0 if sides[0] is sides[1] else found / plain)

    return measure
