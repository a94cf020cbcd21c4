"""Kernels on a mesh: every device runs one on its own rows and its own heads.

The compiler cannot cut a kernel, so it is told here which axes may lie on several devices; what lies
otherwise is moved first. Nothing is exchanged inside a kernel. The mesh is that of ``jax.set_mesh``.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, PartitionSpec

DATA, MODEL = "data", "model"
ROWS, HEADS, GROUPED, WHOLE = "bmn."
"""Kinds of axes: rows, key/value heads, query heads (in groups of key/value heads), never cut."""


def partitioned(
    call: Callable[..., Any], operands: Sequence[str], results: Sequence[str]
) -> Callable[..., Any]:
    """Lets a kernel run on the devices of a mesh.

    Args:
      call: takes arrays; returns one array, or a tuple where there is more than one result.
      operands: the kind of every axis of every argument, a letter each.
      results: likewise of the results.

    Returns:
      The same function; under a mesh its rows lie on "data" and its heads on "model", where they divide.
    """

    def run(*args):
        mesh = jax.sharding.get_abstract_mesh()
        if mesh.size <= 1:
            return call(*args)
        where = _places(mesh, args, operands)
        given, made = ([_spec(kinds, where) for kinds in group] for group in (operands, results))
        made = tuple(made) if len(made) > 1 else made[0]
        return jax.shard_map(call, mesh=mesh, in_specs=tuple(given), out_specs=made, check_vma=False)(*args)

    return run


def _places(mesh: AbstractMesh, args, operands: Sequence[str]) -> dict[str, str | None]:
    """The mesh axis of every kind of axis."""
    sizes = {
        kind: arg.shape[axis]
        for arg, kinds in zip(args, operands, strict=True)
        for axis, kind in enumerate(kinds)
    }
    heads = sizes.get(HEADS, 1)
    # A single key/value head is whole on every device; its queries may be spread all the same.
    spread = GROUPED if heads == 1 else HEADS
    where = {ROWS: _dividing(mesh, DATA, sizes[ROWS]), spread: _dividing(mesh, MODEL, sizes.get(spread, 1))}
    return where if heads == 1 else where | {GROUPED: where[HEADS]}


def _dividing(mesh: AbstractMesh, axis: str, size: int) -> str | None:
    return axis if axis in mesh.axis_names and size % mesh.shape[axis] == 0 else None


def _spec(kinds: str, where: dict[str, str | None]) -> PartitionSpec:
    return PartitionSpec(*(where.get(kind) for kind in kinds))
