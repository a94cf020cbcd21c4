"""Which block shapes a kernel takes: those that were found for the kind of device it is traced for.

The table, ``block_shapes.json``, is written by ``tools/tune_kernels.py``; ``block_table`` says what is in it.
Block shapes change the speed of a kernel and nothing else; where nothing is known it has a default.

A kernel is traced before it is known what it is lowered for. So the kind of device is, in this order: that
of ``for_device``; that of the devices of ``jax.set_mesh``, also where these are a topology that is compiled
for ahead of time; that of ``jax.devices()[0]``. The first two are part of the key by which jax keeps traced
and compiled programs, the last never changes: no program is kept with blocks of another kind.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from kernels_pallas.block_table import Blocks, Table, nearest, read_table

TABLE = Path(__file__).with_name("block_shapes.json")

KINDS = {"TPU v5e": "TPU v5 lite", "TPU v5p": "TPU v5", "TPU v6e": "TPU v6 lite"}
"""Other names of kinds, and those that the table has."""

_told = jax.make_user_context(None)


@contextlib.contextmanager
def for_device(kind: str) -> Iterator[None]:
    """Says for which kind of device programs are traced, where that is not the device at hand.

    It may be entered at any time: what was traced outside is traced again inside, and the other way round.

    Args:
      kind: as ``Device.device_kind`` of the devices compiled for, e.g. "TPU v5 lite". One that the table
        does not know gives every kernel its default.
    """
    with _told(kind):
        yield


def device_kind() -> str:
    """The kind of device that is traced for, as the table has it."""
    kind = _told.value
    if kind is None:
        meshed = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
        kind = (jax.devices()[0] if meshed is None else meshed).device_kind
    return KINDS.get(kind, kind)


def shape_key(dtype: Any = None, **sizes: int) -> str:
    """A shape as the table has it, e.g. ``queries=32 own=128 h=128 s=8192 bfloat16``."""
    words = [f"{name}={size}" for name, size in sizes.items()]
    return " ".join(words if dtype is None else [*words, str(jnp.dtype(dtype))])


def block_shapes(kernel: str, shape: str) -> Blocks | None:
    """Block sizes of a kernel on the device that is traced for.

    Args:
      kernel: of ``block_table.KERNELS``.
      shape: of ``shape_key``, with the sizes that the kernel's ``Rules`` name.

    Returns:
      What the table has for this shape; else what it has for the nearest one whose blocks are safe for this
      one too (``block_table.nearest``); else None: take the default.

    Raises:
      ValueError: the table is not valid; the message names file and entry.
    """
    found = _lookup(device_kind(), kernel, shape)
    return None if found is None else dict(found)


@functools.cache
def _lookup(kind: str, kernel: str, shape: str) -> Blocks | None:
    return nearest(kernel, shape, _committed().get(kind, {}).get(kernel, {}))


@functools.cache
def _committed() -> Table:
    return read_table(TABLE)
