"""``kernels``: the three inner operations, every version that applies here, against the bytes they move."""

import argparse
import dataclasses
import functools
import statistics
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from command_line.timing import seconds, turns
from rich.console import Console
from rich.table import Table

from benchmarks.results import Results
from kernels_pallas.adopt import adopt
from kernels_pallas.branch_attention import attention
from kernels_pallas.dispatch import REFERENCE
from kernels_pallas.verify import picks

HEADS = {"llama-3.1-8b": (32, 8, 128), "llama-3.1-70b": (64, 8, 128), "qwen2.5-coder-1.5b": (12, 2, 128)}
"""Query heads, key/value heads and head width."""


@dataclasses.dataclass(frozen=True)
class _Case:
    """One operation at one shape.

    Attributes:
      name: what the table says.
      nbytes: bytes that any version has to move.
      arguments: makes the arrays.
      step: ``(implementation, arguments) -> arguments``, one call, whose result the next one depends on.
      result: ``(implementation, arguments) -> array``, what is compared with the reference.
    """

    name: str
    nbytes: int
    arguments: Callable[[], tuple]
    step: Callable[..., tuple]
    result: Callable[..., jax.Array]


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module."""
    versions = [REFERENCE, *{"tpu": ["tpu"], "gpu": ["gpu"]}.get(jax.default_backend(), [])]
    found: list[dict[str, Any]] = []
    for case in _cases(options):
        found.append(_measured(case, versions, options))
        results.put(device=jax.devices()[0].device_kind, cases=found)
    console.print(_table(found, options.bandwidth))


def _cases(options: argparse.Namespace) -> list[_Case]:
    """Attention and adopt for every slot count and batch, picks for every batch."""
    n, m, h = HEADS[options.shape]
    dtype, tokens = jnp.dtype(options.dtype), options.tokens
    cases = [
        make(rows, tokens, n, m, h, slots, dtype)
        for rows in options.rows
        for slots in options.slots
        for make in (_attention_case, _adopt_case)
    ]
    return cases + [_picks_case(rows, tokens, options.vocab_size) for rows in options.rows]


def _draw(seed: int, *shapes: tuple[int, ...], dtype) -> list[jax.Array]:
    """Arrays of their own each, since they are donated."""
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return [jax.random.normal(key, shape, dtype) for key, shape in zip(keys, shapes, strict=True)]


def _attention_case(rows: int, tokens: int, n: int, m: int, h: int, slots: int, dtype) -> _Case:
    cache, new = (rows, m, slots, h), (rows, m, tokens, h)

    def arguments():
        query, *buffers = _draw(0, (rows, tokens, n, h), cache, cache, new, new, dtype=dtype)
        end = jnp.full((rows, tokens), slots - 1, jnp.int32)
        visible = jnp.broadcast_to(jnp.tril(jnp.ones((tokens, tokens), bool)), (rows, tokens, tokens))
        return query, *buffers[:2], end, *buffers[2:], visible

    def result(implementation, query, keys, values, end, *own):
        call = functools.partial(attention, scale=h**-0.5, implementation=implementation)
        return call(query, keys, values, None, end, *own)

    def step(implementation, query, *rest):
        return query + jnp.asarray(1e-3, dtype) * result(implementation, query, *rest), *rest

    nbytes = 2 * dtype.itemsize * rows * m * h * (slots + tokens)
    return _Case(f"attention, {rows} x {slots:,} slots", nbytes, arguments, step, result)


def _adopt_case(rows: int, tokens: int, n: int, m: int, h: int, slots: int, dtype) -> _Case:
    cache, new = (rows, m, slots, h), (rows, m, tokens, h)

    def arguments():
        start = jnp.asarray(np.linspace(0, slots - tokens, rows), jnp.int32)
        return *_draw(1, cache, cache, new, new, dtype=dtype), start

    def step(implementation, keys, values, *rest):
        return *adopt(keys, values, *rest, implementation=implementation), *rest

    def result(implementation, *arguments):
        return step(implementation, *arguments)[0]

    nbytes = 4 * dtype.itemsize * rows * m * h * tokens
    return _Case(f"adopt, {rows} x {slots:,} slots", nbytes, arguments, step, result)


def _picks_case(rows: int, tokens: int, vocab_size: int) -> _Case:
    def arguments():
        (logits,) = _draw(2, (rows, tokens, vocab_size), dtype=jnp.float32)
        keys = jax.random.bits(jax.random.key(3), (rows, tokens, 2), jnp.uint32)
        temperature, top_p = (jnp.ones(rows, jnp.float32) for _ in range(2))
        return logits, keys, temperature, jnp.zeros(rows, jnp.int32), top_p

    def result(implementation, *arguments):
        return picks(*arguments, implementation=implementation).token

    def step(implementation, logits, keys, *rest):
        token = result(implementation, logits, keys, *rest)
        return logits, keys + token[..., None].astype(jnp.uint32), *rest

    nbytes = 4 * rows * tokens * vocab_size
    return _Case(f"picks, {rows} x {tokens} of {vocab_size:,}", nbytes, arguments, step, result)


def _measured(case: _Case, versions: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds a call of every version, and how far it is from the reference."""

    @functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
    def calls(implementation, arguments):
        body = lambda _, arguments: case.step(implementation, *arguments)  # noqa: E731
        return jax.lax.fori_loop(0, options.calls, body, arguments)

    exact = case.result(REFERENCE, *case.arguments())
    errors, times = {}, {version: [] for version in versions}
    for version in versions:
        value = case.result(version, *case.arguments())
        errors[version] = float(jnp.max(jnp.abs(value.astype(jnp.float32) - exact.astype(jnp.float32))))
        jax.block_until_ready(calls(version, case.arguments()))
    for version in turns(versions, options.turns):
        time, _ = seconds(calls, version, case.arguments())
        times[version].append(1e3 * time / options.calls)
    return {
        "case": case.name,
        "bytes": case.nbytes,
        "milliseconds": {version: statistics.median(taken) for version, taken in times.items()},
        "turns": times,
        "largest_difference": errors,
    }


def _table(found: list[dict], bandwidth: float | None) -> Table:
    table = Table(title="One call, median", title_justify="left")
    for column in ("case", "version", "ms", "GB/s", "of the floor", "difference"):
        table.add_column(column, justify="left" if column in ("case", "version") else "right")
    for case in found:
        for version, milliseconds in case["milliseconds"].items():
            rate = case["bytes"] / milliseconds / 1e6
            of_floor = f"{bandwidth / rate:.2f}" if bandwidth else ""
            difference = f"{case['largest_difference'][version]:.1e}"
            table.add_row(case["case"], version, f"{milliseconds:.3f}", f"{rate:.1f}", of_floor, difference)
    return table
