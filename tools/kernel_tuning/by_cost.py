"""Measuring without the chip: compile for its topology, and let the cost model judge the program."""

import importlib.util
import os
from collections.abc import Callable

import jax
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from kernel_tuning.chips import Chip
from kernel_tuning.kernels import Problem
from kernel_tuning.search import Refused
from kernels_pallas.block_table import Blocks

MOST_CODE = 1.5
"""Programs more than this many times as long as the default's are refused: how much of one a chip holds at
once is not documented, and larger ones have run nowhere yet."""


def require_libtpu() -> None:
    """Raises ValueError where nothing can be compiled for TPU."""
    if importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ:
        raise ValueError(
            "compiling for a TPU needs libtpu: pip install 'sbjax[tpu-aot]' (or say where it is with "
            "TPU_LIBRARY_PATH)"
        )


def code_bytes(chip: Chip, problem: Problem, blocks: Blocks) -> int:
    """Compiles a candidate for a chip.

    Returns:
      The bytes of the program's code.

    Raises:
      Refused: it does not compile, as when it needs more on-chip memory than there is.
    """
    device = topologies.get_topology_desc(topology_name=chip.topology, platform="tpu").devices[0]
    there = SingleDeviceSharding(device)
    arguments = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there) for x in problem.arguments]
    try:
        program = jax.jit(problem.run(blocks)).trace(*arguments).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        raise Refused(" ".join(str(error).split())[:120]) from error
    return program.memory_analysis().generated_code_size_in_bytes


def meter(
    chip: Chip,
    problem: Problem,
    compile: Callable[[Chip, Problem, Blocks], int] | None = None,
) -> Callable[[Blocks], float]:
    """A function of blocks for ``search``: their seconds by the cost model.

    Args:
      chip: compiled for.
      problem: what is tuned.
      compile: gives the bytes of a program, and raises ``Refused``; None is ``code_bytes``.
    """
    known: dict[tuple, int] = {}

    def code(blocks: Blocks) -> int:
        key = tuple(blocks.items())
        if key not in known:
            known[key] = (compile or code_bytes)(chip, problem, blocks)
        return known[key]

    def measure(blocks: Blocks) -> float:
        default = problem.candidates[0]
        # What a block costs is what a program grows by, so each is compared with another one.
        other = problem.small if problem.small not in (None, blocks) else default
        found = code(blocks)
        if found > MOST_CODE * code(default):
            raise Refused(f"its program of {found} bytes is {found / code(default):.2f} times the default's")
        return problem.cost(chip, (blocks, found), (other, code(other)))

    return measure
