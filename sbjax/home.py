"""Where a model's parameters lie, and how the arrays of a run get there."""

import contextlib
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, Sharding

from sbjax.cache import KVCache
from sbjax.language_model import Params
from sbjax.mesh import cache_sharding, row_sharding

Home = Mesh | Sharding | None


def home_of(params: Params) -> Home:
    """The mesh or the device that parameters are bound to; None if they are bound to none."""
    for leaf in jax.tree.leaves(params):
        if isinstance(leaf, jax.Array) and leaf.committed:
            return leaf.sharding.mesh if isinstance(leaf.sharding, NamedSharding) else leaf.sharding
    return None


def entered(params: Params | None) -> contextlib.AbstractContextManager:
    """Makes the mesh of parameters the current one, where kernels look for it; nothing without a mesh."""
    home = home_of(params)
    return jax.set_mesh(home) if isinstance(home, Mesh) else contextlib.nullcontext()


def apart(params: dict[str, Params]) -> bool:
    """Whether draft and target lie on devices of their own.

    Raises:
      ValueError: they share some devices but not all.
    """
    homes = [_devices(home_of(params.get(name))) for name in ("target", "draft")]
    if None in homes or homes[0] == homes[1]:
        return False
    if homes[0] & homes[1]:
        raise ValueError(
            f"draft and target share devices {sorted(map(str, homes[0] & homes[1]))} but not all of them: "
            "place both on one mesh, or on meshes without a common device"
        )
    return True


def place(tree: Any, home: Home, rows: int) -> Any:
    """Puts small arrays of a run where they are used, rows on the mesh's "data" axis where they divide."""
    if home is None:
        return tree
    if not isinstance(home, Mesh):
        return jax.device_put(tree, home)
    return jax.device_put(tree, jax.tree.map(lambda leaf: row_sharding(home, rows, leaf), tree))


def place_cache(cache: KVCache, home: Home) -> KVCache:
    """Puts a cache where it is used: rows on "data", heads on "model", where they divide."""
    if not isinstance(home, Mesh):
        return place(cache, home, cache.length.shape[0])

    def sharding(leaf):
        rows, heads = leaf.shape[0], leaf.shape[1] if leaf.ndim > 1 else 0
        return cache_sharding(home, rows, heads) if heads else row_sharding(home, rows, leaf)

    return jax.device_put(cache, jax.tree.map(sharding, cache))


def _devices(home: Home) -> frozenset[jax.Device] | None:
    if home is None:
        return None
    return frozenset(home.devices.flat) if isinstance(home, Mesh) else frozenset(home.device_set)
