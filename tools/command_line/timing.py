"""Measuring several things in one run: they take turns, so that a slow minute hits all alike."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax

Side = TypeVar("Side")


def turns(sides: Sequence[Side], count: int) -> Iterator[Side]:
    """Every side ``count`` times; whoever comes first in one turn comes last in the next."""
    for turn in range(count):
        yield from sides if turn % 2 == 0 else reversed(sides)


def seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Calls a function and waits for the arrays it returns: wall time and result."""
    begin = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return time.perf_counter() - begin, result
