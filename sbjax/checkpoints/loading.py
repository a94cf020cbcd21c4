"""From a folder to a model and its parameters, on one device or on a mesh."""

import collections
import dataclasses
import functools
import math
import pathlib
from typing import Any

import jax
import numpy as np

from sbjax import mesh as mesh_lib
from sbjax.checkpoints import hugging_face, orbax, record
from sbjax.checkpoints.conversion import open_hugging_face
from sbjax.checkpoints.dtypes import cast
from sbjax.checkpoints.hub import resolve
from sbjax.checkpoints.inventory import Inventory
from sbjax.checkpoints.shards import Shard, open_shard
from sbjax.checkpoints.tree import leaf_at, nest
from sbjax.language_model import Params
from sbjax.models.decoder import DecoderModel
from sbjax.models.families import from_hf_config
from sbjax.models.weight_names import Weight, weight_table


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model with its parameters.

    Attributes:
      model: the decoder as pure functions.
      params: plain nested dict of arrays, all of ``model.config.dtype``.
      folder: where it came from; the tokenizer lies there.
      config: the parsed ``config.json``.
    """

    model: DecoderModel
    params: Params
    folder: pathlib.Path
    config: dict[str, Any]


def load(
    folder: str | pathlib.Path,
    dtype: str | None = None,
    mesh: jax.sharding.Mesh | None = None,
    *,
    verify: bool = True,
) -> Checkpoint:
    """Loads a converted checkpoint, or a Hugging Face folder as it is.

    Args:
      folder: a folder of either kind, or a hub id.
      dtype: "float32" or "bfloat16". None is the dtype that most of the checkpoint is stored in, but
        float32 on CPUs, which multiply bfloat16 matrices many times slower, and for float16.
      mesh: a mesh with the axes "data" and "model" (``sbjax.mesh.make_mesh``); every device only reads its
        part. None is one device.
      verify: whether the files of a converted checkpoint are compared with their checksums, which reads them
        all on every host. Their sizes are always compared.

    Raises:
      CheckpointError: not a whole checkpoint; the message names the file or weight.
      UnsupportedModel: the config asks for something the decoder does not compute.
    """
    folder = resolve(folder)
    config = hugging_face.read_config(folder)
    table = weight_table(from_hf_config(config))
    if record.is_converted(folder):
        content = record.read_record(folder)
        record.check_weights(folder, content, table)
        record.check_files(folder, content, checksums=verify)
        stored, restore = content.stored_dtypes, functools.partial(orbax.restore, folder / record.PARAMS)
    else:
        source = open_hugging_face(folder, table)
        stored = {name: info.dtype for name, info in source.infos.items()}
        restore = functools.partial(_read_hugging_face, source, table)
    model = DecoderModel(from_hf_config(config, dtype or _default_dtype(stored, table, mesh)))
    return Checkpoint(model, restore(_abstract(model, mesh)), folder, config)


def _default_dtype(stored: dict[str, str], table: dict[str, Weight], mesh: jax.sharding.Mesh | None) -> str:
    platform = (mesh.devices.flat[0] if mesh is not None else _device()).platform
    count: collections.Counter[str] = collections.Counter()
    for name, weight in table.items():
        count[stored[name]] += math.prod(weight.shape)
    return "bfloat16" if platform != "cpu" and count.most_common(1)[0][0] == "bfloat16" else "float32"


def _device() -> jax.Device:
    """The device that arrays go to by default."""
    return next(iter(jax.numpy.zeros(()).devices()))


def _abstract(model: DecoderModel, mesh: jax.sharding.Mesh | None) -> Params:
    abstract = model.abstract()
    if mesh is None:
        place = jax.sharding.SingleDeviceSharding(_device())
        places = jax.tree.map(lambda _: place, abstract)
    else:
        places = mesh_lib.shardings(model, mesh)
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), abstract, places
    )


def _read_hugging_face(inventory: Inventory, table: dict[str, Weight], abstract: Params) -> Params:
    leaves = {}
    for path, names in inventory.files.items():
        with open_shard(path) as shard:
            for name in names:
                leaf = table[name].path
                leaves[leaf] = _place(shard, name, leaf_at(abstract, leaf))
    return nest(leaves)


def _place(shard: Shard, name: str, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """Reads a weight onto its devices, for each of them only its part."""

    def part(index: tuple[slice, ...]) -> np.ndarray:
        return cast(shard.read(name, index), leaf.dtype.name, name)

    return jax.make_array_from_callback(leaf.shape, leaf.sharding, part)
