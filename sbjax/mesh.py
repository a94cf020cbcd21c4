"""Where parameters lie on a mesh: the one table from logical axis names to mesh axes."""

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
            mesh_axis if mesh_axis and units[axis] % mesh.shape[mesh_axis] == 0 else None
            for axis, mesh_axis in zip(axes, chosen, strict=True)
        ]
        return NamedSharding(mesh, PartitionSpec(*spec))

    return jax.tree.map(place, model.logical_axes(), is_leaf=lambda node: isinstance(node, tuple))
