"""The only file that names ``jax.experimental.pallas.mosaic_gpu``, whose names change with every jax release.

A program of a grid is one warpgroup, 128 threads of a Hopper GPU. Values in registers have a layout, which
says what thread holds what element; the compiler has to be told it. The interpreter on CPU knows neither
layouts nor transposed operands of products: the functions here that take ``interpret`` do without there.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

Barrier = plgpu.Barrier
copy_in = plgpu.copy_gmem_to_smem
copy_out = plgpu.copy_smem_to_gmem
wait = plgpu.barrier_wait
wait_out = plgpu.wait_smem_to_gmem
commit = plgpu.commit_smem

MATRIX = plgpu.Layout.WGMMA
"""Layout of an operand or result ``[64 n, 8 m]`` of a product."""

ROWS = MATRIX.reduce(1)
"""Layout of one value for every row of a ``MATRIX``, ``[64 n]``."""

# jax 0.10 asks for an index beside the reference.
_NO_INDEX = (None,) if "idx" in inspect.signature(plgpu.load).parameters else ()

Interpret = Any
"""How a kernel runs: False compiles it, ``simulated()`` runs it on a simulated GPU."""


def launch(
    body: Callable[..., None],
    operands: Sequence[Any],
    out: Sequence[jax.ShapeDtypeStruct],
    scratch: Sequence[Any],
    grid: dict[str, int],
    *,
    cost: pl.CostEstimate,
    interpret: Interpret,
    fast: bool = False,
) -> Sequence[jax.Array]:
    """Runs a kernel over a grid.

    Args:
      body: takes references to the operands, to the outputs and to the scratch memory; ``lax.axis_index``
        of an axis name is a program's place.
      operands: arrays, and mutable arrays of ``buffer``, which are changed in place.
      out: shapes and dtypes of the outputs, which lie in the GPU's memory.
      scratch: shared memory and barriers of one program.
      grid: the size of every axis by its name.
      cost: what the kernel does, for the compiler's schedule.
      interpret: see ``Interpret``.
      fast: whether exponentials, logarithms and tanh may be the processor's approximations.

    Returns:
      The outputs.
    """

    def program(*refs):
        pl.run_scoped(lambda *own: body(*refs, *own), *scratch)

    return pl.kernel(
        program,
        out_type=tuple(out),
        mesh=plgpu.Mesh(grid=tuple(grid.values()), grid_names=tuple(grid)),
        compiler_params=plgpu.CompilerParams(approx_math=fast),
        cost_estimate=cost,
        interpret=interpret,
        name=body.__name__,
    )(*operands)


def simulated(**options) -> Interpret:
    """Interprets a kernel on CPU with a GPU's memories, copies and barriers; uninitialised memory is NaN.

    Args:
      **options: of jax's ``InterpretGPUParams``, which has no public name in jax 0.10.
    """
    if hasattr(plgpu, "InterpretGPUParams"):
        return plgpu.InterpretGPUParams(**options)
    from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

    return InterpretGPUParams(**options)


def buffer(x: jax.Array):
    """A mutable array that starts as ``x``: in place where ``x`` is donated or not used again."""
    return jax.new_ref(x, memory_space=plgpu.GMEM)


def shared(shape: Sequence[int], dtype: Any):
    """Shared memory, laid out as it is written."""
    return plgpu.SMEM(tuple(shape), dtype)


def tiled(shape: Sequence[int], dtype: Any):
    """Shared memory ``[.., rows, columns]`` in the tiles that products read; rows are a multiple of 8."""
    bits = 8 * jnp.dtype(dtype).itemsize
    swizzle = plgpu.find_swizzle(shape[-1] * bits)
    transforms = (plgpu.TilingTransform((8, 8 * swizzle // bits)), plgpu.SwizzleTransform(swizzle))
    return plgpu.SMEM(tuple(shape), dtype, transforms=transforms)


def flat(shape: Sequence[int], width: int = 1):
    """Layout of values dealt out to the threads in order, ``width`` neighbours to a thread."""
    return plgpu.Layout.WG_STRIDED(tuple(shape), width)


def laid_out(x: jax.Array, layout: Any, interpret: Interpret) -> jax.Array:
    """``x`` in the given layout."""
    return x if interpret else plgpu.layout_cast(x, layout)


def load(ref: Any, index: Any, layout: Any, interpret: Interpret) -> jax.Array:
    """A part of a reference, in the given layout."""
    if interpret:
        return ref[index]
    return plgpu.load(ref.at[index], *_NO_INDEX, layout=layout, optimized=False)


def iota(shape: Sequence[int], axis: int, layout: Any, interpret: Interpret) -> jax.Array:
    """int32 indices along an axis."""
    return laid_out(jax.lax.broadcasted_iota(jnp.int32, tuple(shape), axis), layout, interpret)


def product(left: Any, right: Any, interpret: Interpret, *, transposed: bool = False) -> jax.Array:
    """``left @ right`` or ``left @ right.T`` by the tensor cores, ``[64 n, m]`` float32.

    Args:
      left: a ``tiled`` reference, or a value of layout ``MATRIX``.
      right: a ``tiled`` reference.
      interpret: see ``Interpret``.
      transposed: whether ``right`` is transposed.
    """
    if interpret:
        left, right = (x if isinstance(x, jax.Array) else x[...] for x in (left, right))
        contracted = (((1,), (1 if transposed else 0,)), ((), ()))
        return jax.lax.dot_general(left, right, contracted, preferred_element_type=jnp.float32)
    right = right.transpose((1, 0)) if transposed else right

    def accumulate(total):
        plgpu.wgmma(total, left, right)
        return total[...]

    return pl.run_scoped(accumulate, plgpu.ACC((left.shape[0], right.shape[1]), jnp.float32))
