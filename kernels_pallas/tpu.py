"""The only file that names ``jax.experimental.pallas.tpu``, whose names change with every release of jax."""

from typing import Any

from jax.experimental.pallas import tpu as pltpu

VMEM = pltpu.VMEM
SMEM = pltpu.SMEM
PrefetchScalarGridSpec = pltpu.PrefetchScalarGridSpec

LANES = 128

Interpret = Any
"""How a kernel runs: False compiles it, True interprets it as plain HLO, ``simulated()`` as a TPU would."""


def compiler_params(*semantics: str, vmem_bytes: int | None = None) -> pltpu.CompilerParams:
    """Parameters of the TPU compiler.

    Args:
      *semantics: "parallel" or "arbitrary" for every grid axis; of a parallel one the order is free.
      vmem_bytes: on-chip memory that the kernel may use; None is the compiler's default, 16 MiB.
    """
    return pltpu.CompilerParams(dimension_semantics=semantics, vmem_limit_bytes=vmem_bytes)


def simulated(**options) -> pltpu.InterpretParams:
    """Interprets a kernel with a TPU's memories and copies; uninitialised memory is NaN.

    Args:
      **options: of ``jax.experimental.pallas.tpu.InterpretParams``.
    """
    return pltpu.InterpretParams(**{"uninitialized_memory": "nan", **options})


def slots_last(head_dim: int) -> bool:
    """Whether XLA lays a cache ``[B, M, S, H]`` out with the slots innermost.

    It does where the head width would fill lanes only in part. A kernel that then reads ``[B, M, H, S]``
    gets the buffer as it lies; one that insists on the head width gets a copy of it, padded.
    """
    return head_dim % LANES != 0
