"""Where parameters, caches and rows lie on a mesh: the one table from logical axis names to mesh axes."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from sbjax.models.decoder import DecoderModel

DATA, MODEL = "data", "model"

# The names of ``sbjax.models.weight_names.Weight.axes``.
MESH_AXIS: dict[str, str | None] = {
    "vocab": MODEL,
    "heads": MODEL,
    "kv_heads": MODEL,
    "mlp": MODEL,
    "embed": None,
    "head_dim": None,
}


def make_mesh(data: int, model: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Makes a mesh of ``data * model`` devices.

    Args:
      data: devices that rows are spread over.
      model: devices that heads, the MLP and the vocabulary are spread over.
      devices: which ones; None takes all there are.

    Raises:
      ValueError: the number of devices differs.
    """
    devices = jax.devices() if devices is None else devices
    if data * model != len(devices):
        raise ValueError(f"a mesh of data={data} and model={model} does not fit {len(devices)} devices")
    types = (AxisType.Auto, AxisType.Auto)
    return jax.make_mesh((data, model), (DATA, MODEL), axis_types=types, devices=devices)


def shardings(model: DecoderModel, mesh: Mesh) -> Any:
    """The sharding of every parameter.

    Heads are never cut: query, key and value projections are spread only where the number of heads
    divides. An axis that does not divide is whole on every device.

    Args:
      model: the decoder.
      mesh: a mesh with the axes "data" and "model".

    Returns:
      The parameters' nested dict with a ``NamedSharding`` in the place of every array.

    Raises:
      ValueError: the mesh has other axes.
    """
    if set(mesh.axis_names) != {DATA, MODEL}:
        raise ValueError(f"the mesh must have the axes {DATA!r} and {MODEL!r}, it has {mesh.axis_names}")
    config = model.config
    units = {
        "vocab": config.vocab_size,
        "heads": config.heads,
        "kv_heads": config.kv_heads,
        "mlp": config.mlp_width,
    }

    def place(axes: tuple[str, ...]) -> NamedSharding:
        chosen = [MESH_AXIS[axis] for axis in axes]
        spec = [
            mesh_axis and _where_it_divides(mesh, mesh_axis, units[axis])
            for axis, mesh_axis in zip(axes, chosen, strict=True)
        ]
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(place, model.logical_axes(), is_leaf=lambda node: isinstance(node, tuple))


def cache_sharding(mesh: Mesh, rows: int, kv_heads: int) -> NamedSharding:
    """Sharding of cache buffers ``[B, M, S, H]``: rows on "data" and heads on "model", where they divide."""
    spread = (_where_it_divides(mesh, DATA, rows), _where_it_divides(mesh, MODEL, kv_heads))
    return NamedSharding(mesh, _spec(spread))


def row_sharding(mesh: Mesh, rows: int, leaf: jax.Array) -> NamedSharding:
    """Sharding of a small array of a run: its rows on "data" where it has rows and they divide.

    An empty array is whole everywhere: XLA gives it back so, wherever it was.
    """
    by_row = leaf.ndim > 0 and leaf.shape[0] == rows and leaf.size > 0
    return NamedSharding(mesh, _spec([_where_it_divides(mesh, DATA, rows)] if by_row else []))


def _spec(axes: Sequence[str | None]) -> PartitionSpec:
    """Without trailing Nones, as XLA writes it: specs that differ in them count as different."""
    kept = list(axes)
    while kept and kept[-1] is None:
        kept.pop()
    return PartitionSpec(*kept)


def _where_it_divides(mesh: Mesh, axis: str, size: int) -> str | None:
    # An axis of one device is left out, as XLA does: a program would be compiled again for the difference.
    return axis if mesh.shape[axis] > 1 and size % mesh.shape[axis] == 0 else None
