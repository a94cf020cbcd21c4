"""``every-method``: all methods on a pair, the text compared token for token with plain decoding.

Both models are on one device, or, with ``--apart``, each has one of its own. Besides the counters and the
speed of every method it says how long the device-time model thinks the run should have taken, from step
times measured in the same call.
"""

import argparse
import dataclasses
import itertools
from typing import Any

import jax
from command_line.timing import turns
from rich.console import Console
from rich.table import Table

import sbjax
from benchmarks.asked import choose, load_pair
from benchmarks.decoding import Decoder, Run, add_statistics
from benchmarks.near_ties import explain
from benchmarks.results import Results
from benchmarks.step_times import by_model, measure
from benchmarks.suites import Suite, read_suite
from sbjax.methods import PEARL, AdaEDL, Autoregressive, Lookahead, PromptLookup, SpecBranch, SpS
from sbjax.start import bucket

_TURNS = 3


def methods(draft_length: int) -> dict[str, sbjax.Method]:
    """What is compared, plain decoding first."""
    g = draft_length
    return {
        "plain": Autoregressive(),
        "SpS": SpS(g),
        "AdaEDL": AdaEDL(2 * g),
        "PromptLookup": PromptLookup(7),
        "Lookahead": Lookahead(),
        "PEARL": PEARL(g),
        "point": SpecBranch(g, branches=4, hedge="point", epsilon=0.3),
        "outcomes": SpecBranch(g, branches=4, epsilon=0.3, head_start=0),
    }


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module.

    Raises:
      ValueError: the prompts are no whole batches, or a method is unknown.
    """
    if options.report % options.batch:
        raise ValueError(f"--report {options.report} prompts are no whole batches of {options.batch}")
    chosen = _chosen(options)
    target, draft = _apart(load_pair(options)) if options.apart else load_pair(options)
    suites = [read_suite(path, target.tokenizer, options) for path in options.prompts]
    decoders = {
        name: Decoder(target, draft if method.draft_length else None, method)
        for name, method in chosen.items()
    }
    slack = max(decoder.engine.slack for decoder in decoders.values())
    slots = bucket(max(suite.longest for suite in suites) + options.max_new_tokens + slack)
    times = _step_times(target, draft, decoders, options.batch, slots, console)
    results.put(target_seconds=times["target"], draft_seconds=times["draft"])
    for name, decoder in decoders.items():
        console.print(f"compiling {name}")
        prompts = suites[0].tuning[:1] * options.batch
        decoder.run(prompts, 2, slots=slots, stop_ids=target.defaults.stop_ids)
    found = []
    for suite, temperature in itertools.product(suites, options.temperature):
        console.print(f"{suite.name}, temperature {temperature}")
        found.append(
            _case(
                suite,
                temperature,
                decoders,
                target,
                slots,
                options,
                sbjax.StepTimes.from_tables(times["target"], times["draft"]),
            )
        )
        results.put(cases=found)
        console.print(_table(found[-1]))


def _apart(models: tuple[sbjax.Model, sbjax.Model]) -> tuple[sbjax.Model, ...]:
    """Target and draft, bound to the first and the second device."""
    devices = jax.devices()
    if len(devices) < 2:
        raise ValueError(
            "--apart needs two devices, there is one; on a CPU give it two of one thread each with "
            'XLA_FLAGS="--xla_force_host_platform_device_count=2 --xla_cpu_multi_thread_eigen=false"'
        )
    return tuple(
        dataclasses.replace(model, params=jax.device_put(model.params, device))
        for model, device in zip(models, devices[:2], strict=True)
    )


def _chosen(options: argparse.Namespace) -> dict[str, sbjax.Method]:
    """The methods that were asked for, and plain decoding."""
    every, where = methods(options.draft_length), ""
    if options.apart:
        every = {name: method for name, method in every.items() if name == "plain" or method.overlapped}
        where = " with the models apart"
    return choose(every, options.methods, "plain", where)


def _step_times(target, draft, decoders, rows: int, slots: int, console: Console) -> dict[str, dict]:
    """Seconds of a target forward by tokens and of a draft step by branches, for what the methods use."""
    widths = {width for decoder in decoders.values() for width in decoder.engine.target_widths}
    branches = {1, 2, *(getattr(decoder.method, "branches", 1) for decoder in decoders.values())}
    models, wanted = {"target": target, "draft": draft}, {"target": widths, "draft": branches}
    return by_model(measure(models, wanted, rows, slots, _TURNS, console))


def _case(suite: Suite, temperature: float, decoders, target, slots: int, options, times) -> dict[str, Any]:
    """All methods on the reported prompts of a suite, taking turns prompt by prompt."""
    runs: dict[str, list[Run]] = {name: [] for name in decoders}
    for number, name in enumerate(turns(list(decoders), len(suite.reported) // options.batch)):
        first = number // len(decoders) * options.batch
        ids = list(range(first, first + options.batch))
        prompts = [suite.reported[row] for row in ids]
        runs[name].append(
            decoders[name].run(
                prompts, options.max_new_tokens, slots=slots, temperature=temperature, seed=options.seed,
                row_ids=ids, stop_ids=target.defaults.stop_ids,
            )
        )  # fmt: skip
    rows = {}
    for name, each in runs.items():
        figures = sbjax.summary(add_statistics([run.statistics for run in each]))
        seconds = sum(run.decode_seconds for run in each)
        forwards = sum(max(map(len, run.tokens)) for run in runs["plain"])
        modelled = sbjax.run_time(figures, decoders[name].method, times, plain_forwards=forwards)
        rows[name] = figures | {
            "seconds": seconds,
            "tokens_a_second": figures["tokens"] / seconds,
            "modelled_seconds": modelled.two_devices if options.apart else modelled.one_device,
            "differences": _differences(suite, target, runs["plain"], each, temperature, slots, options.seed),
        }
    return {"suite": suite.name, "prompts": suite.numbers, "temperature": temperature, "methods": rows}


def _differences(suite: Suite, target, plain: list[Run], other: list[Run], temperature, slots, seed) -> list:
    texts = [[text for run in runs for text in run.tokens] for runs in (plain, other)]
    found = [
        explain(
            target, prompt, one, two, temperature=temperature, seed=seed, row_id=row, slots=slots,
        )
        for row, (prompt, one, two) in enumerate(zip(suite.reported, *texts, strict=True))
    ]  # fmt: skip
    return [{"row": row, **each} for row, each in enumerate(found) if each is not None]


def _table(case: dict[str, Any]) -> Table:
    title = f"{case['suite']}, temperature {case['temperature']}, {len(case['prompts'])} prompts"
    table = Table(title=title, title_justify="left")
    names = (
        "",
        "tokens/s",
        "of plain",
        "modelled/measured",
        "tokens a round",
        "rolled back",
        "hit rate",
        "same",
    )
    for name in names:
        table.add_column(name, justify="right" if name else "left")
    plain = case["methods"]["plain"]["tokens_a_second"]
    for name, row in case["methods"].items():
        table.add_row(
            name,
            f"{row['tokens_a_second']:.2f}",
            f"{row['tokens_a_second'] / plain:.2f}",
            f"{row['modelled_seconds'] / row['seconds']:.2f}",
            f"{row['mean_accepted_length']:.2f}",
            f"{row['rollback']:.0%}",
            f"{row['hit_rate']:.0%}" if "hit_rate" in row else "",
            f"{len(case['prompts']) - len(row['differences'])} of {len(case['prompts'])}",
        )
    return table
