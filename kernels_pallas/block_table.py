"""The table of block shapes: what an entry looks like, when it is valid, and for which shapes it is safe.

``{device kind: {kernel: {shape: {"blocks": {name: size}, "by": "cost" or "time", ..}}}}``; kinds as jax's
``Device.device_kind`` has them, kernels as in ``KERNELS``, a shape as words ``name=size`` and a dtype. What
else is in an entry says how it was found and is not looked at.
"""

import dataclasses
import json
import math
from collections.abc import Callable, ItemsView, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp

NEAR = 2
"""By what factor a size may differ where the blocks of one shape serve another."""
VMEM_BYTES = 16 * 2**20
"""On-chip memory of a TPU kernel that does not ask for more."""
SHARED_BYTES = 227 * 2**10
"""Shared memory of a program on a Hopper GPU."""

DTYPES = ("bfloat16", "float16", "float32")

Blocks = dict[str, int]
Table = dict[str, dict[str, dict[str, dict[str, Any]]]]


def _attention_on_tpu(size: Mapping[str, Any], blocks: Mapping[str, int]) -> str | None:
    if size["s"] % blocks["slots"]:
        return f"slots={blocks['slots']} does not divide s={size['s']}"
    # Keys and values of two blocks, the one in use and the next; the compiler knows what else there is.
    least = 4 * blocks["slots"] * size["h"] * jnp.dtype(size["dtype"]).itemsize
    return f"two blocks of {least // 2} bytes do not fit {VMEM_BYTES}" if least > VMEM_BYTES else None


def _attention_on_gpu(size: Mapping[str, Any], blocks: Mapping[str, int]) -> str | None:
    if blocks["slots"] not in (64, 128) or blocks["stages"] < 2:
        return "slots are 64 or 128, stages two or more"
    if size["s"] % blocks["slots"]:
        return f"slots={blocks['slots']} does not divide s={size['s']}"
    # Keys and values of every stage, and 64 queries.
    lines = 2 * blocks["stages"] * blocks["slots"] + 64
    least = lines * size["h"] * jnp.dtype(size["dtype"]).itemsize
    return f"{least} bytes do not fit {SHARED_BYTES}" if least > SHARED_BYTES else None


def _verify_on_tpu(size: Mapping[str, Any], blocks: Mapping[str, int]) -> str | None:
    return f"chunk={blocks['chunk']} is more than v={size['v']}" if blocks["chunk"] > size["v"] else None


@dataclasses.dataclass(frozen=True)
class Rules:
    """What an entry of a kernel looks like, and for which other shapes it is safe.

    Attributes:
      blocks: the names of its block sizes, and what each is a multiple of.
      unfit: says why blocks do not fit a shape, or None.
      equal: what of a shape has to be the same where its blocks serve another.
      covers: sizes that have to be as large or larger: all that a block takes of the on-chip memory grows
        with them, so that what compiled for the larger one compiles for the smaller.
      free: sizes that what fits does not depend on.
    """

    blocks: Mapping[str, int]
    unfit: Callable[[Mapping[str, Any], Mapping[str, int]], str | None]
    equal: tuple[str, ...]
    covers: tuple[str, ...] = ()
    free: tuple[str, ...] = ()


KERNELS = {
    # For another ``s`` the kernel takes the largest divisor of it up to ``slots``: blocks get no larger.
    "branch_attention/tpu": Rules(
        {"slots": 128}, _attention_on_tpu, ("h", "dtype"), ("queries", "own"), ("s",)
    ),
    "branch_attention/gpu": Rules(
        {"slots": 64, "stages": 1}, _attention_on_gpu, ("h", "s", "dtype"), (), ("queries",)
    ),
    # What a chunk leaves over decides, so that another vocabulary is another matter.
    "verify/tpu": Rules({"chunk": 512}, _verify_on_tpu, ("v",)),
}


def nearest(kernel: str, shape: str, entries: Mapping[str, Mapping[str, Any]]) -> Blocks | None:
    """The blocks that serve a shape best.

    Args:
      kernel: of ``KERNELS``.
      shape: a key of the table.
      entries: of that kernel on one kind of device.

    Returns:
      Those of the shape itself; else, of the entries that are safe for it by ``Rules`` and whose sizes
      differ by no more than ``NEAR``, those of the nearest; None if there are none.
    """
    if shape in entries:
        return entries[shape]["blocks"]
    wanted, rules = parse_shape(shape), KERNELS[kernel]
    safe = []
    for key, entry in entries.items():
        other = parse_shape(key)
        ratios = [other[name] / wanted[name] for name in (*rules.covers, *rules.free)]
        fits = all(other[name] == wanted[name] for name in rules.equal)
        fits = fits and all(other[name] >= wanted[name] for name in rules.covers)
        if fits and all(1 / NEAR <= ratio <= NEAR for ratio in ratios):
            # Of equally near ones the first by name, whatever the order of the file.
            safe.append((sum(abs(math.log2(ratio)) for ratio in ratios), key, entry["blocks"]))
    return min(safe)[2] if safe else None


def parse_shape(shape: str) -> dict[str, Any]:
    """The sizes in a key of the table, and "dtype" where it has one.

    Raises:
      ValueError: it is no such key.
    """
    found: dict[str, Any] = {}
    for word in shape.split():
        name, equals, number = word.partition("=")
        if equals and not (number.isdecimal() and int(number)):
            raise ValueError(f"{name} is {number!r}, a size is expected")
        found |= {name: int(number)} if equals else {"dtype": word}
    return found


def read_table(path: Path) -> Table:
    """Reads a table.

    Raises:
      ValueError: something in it is not as it must be, or an entry does not fit its shape; the message names
        file and entry.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        for kind, kernels in _items(table, "the table"):
            for kernel, entries in _items(kernels, kind):
                for shape, entry in _items(entries, f"{kind}, {kernel}"):
                    if why := wrong(kernel, shape, entry):
                        raise ValueError(f"{kind}, {kernel}, {shape}: {why}")
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: no JSON: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return table


def _items(value: Any, what: str) -> ItemsView[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be an object, it is {value!r}")
    return value.items()


def wrong(kernel: str, shape: str, entry: Any) -> str | None:
    """Why an entry is not valid, in a sentence; None if it is."""
    if kernel not in KERNELS:
        return f"there is no such kernel, only {', '.join(KERNELS)}"
    rules, blocks = KERNELS[kernel], entry.get("blocks") if isinstance(entry, Mapping) else None
    try:
        sizes = parse_shape(shape)
    except ValueError as error:
        return str(error)
    if sizes.get("dtype", DTYPES[0]) not in DTYPES:
        return f"{sizes['dtype']!r} is neither a size nor one of {', '.join(DTYPES)}"
    if set(sizes) != {*rules.equal, *rules.covers, *rules.free}:
        return f"a shape of this kernel has {', '.join((*rules.covers, *rules.free, *rules.equal))}"
    if not isinstance(blocks, Mapping) or set(blocks) != set(rules.blocks):
        return f'"blocks" must have {", ".join(rules.blocks)}, it is {blocks!r}'
    for name, multiple in rules.blocks.items():
        size = blocks[name]
        if type(size) is not int or size < 1 or size % multiple:
            return f"{name} is {size!r}, it must be a multiple of {multiple}"
    return rules.unfit(sizes, blocks)
