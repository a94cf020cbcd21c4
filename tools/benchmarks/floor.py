"""``floor``: a step of plain greedy decoding against a program of nothing but its matrix products."""

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from command_line.timing import seconds, turns
from rich.console import Console
from rich.table import Table

import sbjax
from benchmarks.decoding import Decoder
from benchmarks.products import count_products, matrices, run_products
from benchmarks.results import Results


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module.

    Raises:
      ValueError: the compiled floor is not what it is meant to be.
    """
    target = sbjax.load(Path(options.target), options.dtype)
    config = target.model.config
    shapes = matrices(config)
    found = count_products(config, target.params)
    if found != len(shapes):
        raise ValueError(f"the compiled floor has {found} matrix products, the model {len(shapes)}")
    size = sum(math.prod(shape) for shape in shapes.values()) * jnp.dtype(config.dtype).itemsize
    sides = {"plain": _Plain(target, options), "products": _Products(target, options)}
    milliseconds: dict[str, list[float]] = {name: [] for name in sides}
    # Twice: the first call's arguments come from the host, and arrays that are placed compile anew.
    for side in (*sides.values(), *sides.values()):
        side()
    for name in turns(list(sides), options.turns):
        milliseconds[name].append(sides[name]() * 1e3 / options.steps)
        results.put(milliseconds_a_step=milliseconds)
    results.put(
        matrices=len(shapes), gigabytes=size / 1e9, slots=sides["plain"].slots, **_summary(milliseconds, size)
    )
    console.print(_table(results.content))


class _Plain:
    """Steps of plain greedy decoding: each call goes on where the last one ended."""

    def __init__(self, target: sbjax.Model, options: argparse.Namespace):
        decoder = Decoder(target, None, sbjax.Autoregressive())
        self._engine, self._params, self._steps = decoder.engine, decoder.params, options.steps
        # The cost does not depend on which tokens these are.
        prompt = (np.arange(options.prompt_length) % self._engine.vocab_size).tolist()
        self._state = sbjax.start(
            self._engine,
            self._params,
            [prompt],
            [options.steps * (options.turns + 2)],
            sampling=sbjax.Sampling.create(1),
            noise=sbjax.KeyedNoise.create(jnp.zeros(1, jnp.uint32), jnp.zeros(1, jnp.uint32)),
        )
        self.slots = self._state.text.shape[1]

    def __call__(self) -> float:
        before = int(self._state.length[0])
        arguments = (self._engine, self._params, self._state, jnp.int32(self._steps))
        time, self._state = seconds(sbjax.run, *arguments)
        made = int(self._state.length[0]) - before
        if made != self._steps:
            raise ValueError(f"plain decoding made {made} tokens instead of {self._steps}: NaN logits?")
        return time


class _Products:
    """Steps of the floor."""

    def __init__(self, target: sbjax.Model, options: argparse.Namespace):
        self._config, self._params = target.model.config, target.params
        self._steps = options.steps
        self._x = jnp.ones((1, self._config.width), self._config.dtype)

    def __call__(self) -> float:
        time, self._x = seconds(run_products, self._config, self._params, self._x, jnp.int32(self._steps))
        return time


def _summary(milliseconds: dict[str, list[float]], size: int) -> dict[str, Any]:
    median = {name: statistics.median(values) for name, values in milliseconds.items()}
    ratios = [p / f for p, f in zip(milliseconds["plain"], milliseconds["products"], strict=True)]
    return {
        "median_milliseconds": median,
        "gigabytes_a_second": {name: size / 1e6 / value for name, value in median.items()},
        "ratio_of_medians": median["plain"] / median["products"],
        "median_of_ratios": statistics.median(ratios),
    }


def _table(content: dict[str, Any]) -> Table:
    table = Table(title=f"One step, batch 1, {content['gigabytes']:.2f} GB of matrices", title_justify="left")
    for name in ("", "ms a step", "GB/s", "ratio"):
        table.add_column(name, justify="right" if name else "left")
    for name, label in (("plain", "plain greedy decoding"), ("products", "matrix products alone")):
        ratio = f"{content['ratio_of_medians']:.3f}" if name == "plain" else "1"
        median, rate = content["median_milliseconds"][name], content["gigabytes_a_second"][name]
        table.add_row(label, f"{median:.3f}", f"{rate:.1f}", ratio)
    return table
