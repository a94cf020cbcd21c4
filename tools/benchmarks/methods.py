"""``methods``: plain decoding against SpS on prompts of suites, by temperature and batch size.

The draft length is chosen on tuning prompts; figures are of other prompts, plain decoding and the
method taking turns batch by batch, and every text is compared token for token.
"""

import argparse
import itertools
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from command_line.timing import turns
from rich.console import Console
from rich.table import Table

import sbjax
from benchmarks.asked import load_pair
from benchmarks.decoding import Decoder, Run, add_statistics
from benchmarks.near_ties import explain
from benchmarks.results import Results
from benchmarks.suites import Suite, read_suite
from sbjax.start import bucket


class _Setting(NamedTuple):
    """One case of the benchmark."""

    suite: Suite
    batch: int
    temperature: float
    slots: int


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module.

    Raises:
      ValueError: the prompts do not divide into batches, or there are too few.
    """
    for batch, name in itertools.product(options.batch, ("tune", "report")):
        if getattr(options, name) % batch:
            raise ValueError(f"--{name} {getattr(options, name)} prompts are no whole batches of {batch}")
    target, draft = load_pair(options, options.dtype)
    suites = [read_suite(path, target.tokenizer, options) for path in options.prompts]
    bench = _Bench(target, draft, options)
    found: list[dict[str, Any]] = []
    for suite, batch, temperature in itertools.product(suites, options.batch, options.temperature):
        needed = suite.longest + options.max_new_tokens + max(options.draft_length) + 1
        setting = _Setting(suite, batch, temperature, bucket(needed))
        case = bench.measure(setting, console)
        found.append(case)
        results.put(cases=found)
    console.print(_table(found))


class _Bench:
    """The loaded pair, with every way of decoding."""

    def __init__(self, target: sbjax.Model, draft: sbjax.Model, options: argparse.Namespace):
        self._options = options
        self._target = target
        self._plain = Decoder(target, None, sbjax.Autoregressive())
        self._draft_alone = Decoder(draft, None, sbjax.Autoregressive())
        lengths = options.draft_length
        self._methods = {length: Decoder(target, draft, sbjax.SpS(draft_length=length)) for length in lengths}
        self._warm: set[tuple[int, int]] = set()

    def measure(self, setting: _Setting, console: Console) -> dict[str, Any]:
        """One case: warm-up, tuning, report."""
        self._warm_up(setting)
        label = f"{setting.suite.name}, batch {setting.batch}, temperature {setting.temperature}"
        console.print(f"{label}: tuning")
        tuning = self._tune(setting)
        best = max(self._methods, key=lambda length: tuning[f"SpS({length})"]["tokens_a_second"])
        console.print(f"{label}: reporting with draft length {best}")
        return {
            "suite": setting.suite.name,
            "prompts": setting.suite.numbers,
            "batch": setting.batch,
            "temperature": setting.temperature,
            "slots": setting.slots,
            "tuning": tuning,
            "draft_length": best,
            **self._report(setting, best),
        }

    def _run(
        self, decoder: Decoder, setting: _Setting, batch: int, prompts: list, limit: int | None = None
    ) -> Run:
        """Decodes batch number ``batch`` of the prompts."""
        rows = list(range(batch * setting.batch, (batch + 1) * setting.batch))
        return decoder.run(
            [prompts[row] for row in rows],
            limit or self._options.max_new_tokens,
            slots=setting.slots,
            temperature=setting.temperature,
            seed=self._options.seed,
            row_ids=rows,
            stop_ids=self._target.defaults.stop_ids,
        )

    def _warm_up(self, setting: _Setting) -> None:
        """Compiles whatever is new at this shape."""
        if (setting.batch, setting.slots) not in self._warm:
            for decoder in (self._plain, self._draft_alone, *self._methods.values()):
                self._run(decoder, setting, 0, setting.suite.tuning, limit=2)
            self._warm.add((setting.batch, setting.slots))

    def _tune(self, setting: _Setting) -> dict[str, Any]:
        """Speeds of plain decoding, of the draft alone, and of every draft length."""
        sides = {"plain": self._plain, "draft alone": self._draft_alone}
        sides |= {f"SpS({length})": decoder for length, decoder in self._methods.items()}
        prompts = setting.suite.tuning
        batches = len(prompts) // setting.batch
        runs: dict[str, list[Run]] = {name: [] for name in sides}
        for number, name in enumerate(turns(list(sides), batches)):
            runs[name].append(self._run(sides[name], setting, number // len(sides), prompts))
        return {name: _figures(each) for name, each in runs.items()}

    def _report(self, setting: _Setting, length: int) -> dict[str, Any]:
        """Plain decoding and the chosen draft length on the reported prompts."""
        sides = {"plain": self._plain, "SpS": self._methods[length]}
        prompts = setting.suite.reported
        runs: dict[str, list[Run]] = {name: [] for name in sides}
        for number, name in enumerate(turns(list(sides), len(prompts) // setting.batch)):
            runs[name].append(self._run(sides[name], setting, number // 2, prompts))
        plain, fast = runs["plain"], runs["SpS"]
        ratios = [_rate([f]) / _rate([p]) for p, f in zip(plain, fast, strict=True)]
        return {
            "plain": _figures(plain),
            "SpS": _figures(fast),
            "ratio_of_totals": _rate(fast) / _rate(plain),
            "median_ratio": statistics.median(ratios),
            "ratio_with_prefill": _rate(fast, prefill=True) / _rate(plain, prefill=True),
            "rows": len(prompts),
            "differences": self._differences(setting, plain, fast),
        }

    def _differences(self, setting: _Setting, plain: list[Run], fast: list[Run]) -> list[dict[str, Any]]:
        """The rows whose tokens are not the same, with the gap of the scores where they part."""
        texts = [[row for run in runs for row in run.tokens] for runs in (plain, fast)]
        found = []
        for row, (prompt, one, other) in enumerate(zip(setting.suite.reported, *texts, strict=True)):
            difference = explain(
                self._target,
                prompt,
                one,
                other,
                temperature=setting.temperature,
                seed=self._options.seed,
                row_id=row,
                slots=setting.slots,
            )
            if difference is not None:
                found.append({"row": row, **difference})
        return found


def _rate(runs: Sequence[Run], prefill: bool = False) -> float:
    """Tokens a second over several runs."""
    times = [run.decode_seconds + (run.prefill_seconds if prefill else 0.0) for run in runs]
    return sum(int(run.statistics.emitted.sum()) for run in runs) / sum(times)


def _figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Counters and speeds over several runs. A round's time is that of its whole batch."""
    summary = sbjax.summary(add_statistics([run.statistics for run in runs]))
    seconds = sum(run.decode_seconds for run in runs)
    return {
        **summary,
        "decode_seconds": seconds,
        "prefill_seconds": sum(run.prefill_seconds for run in runs),
        "tokens_a_second": _rate(runs),
        "milliseconds_a_round": seconds * 1e3 / summary["target_forwards"],
    }


def _table(found: Sequence[dict[str, Any]]) -> Table:
    table = Table(title="Plain decoding against SpS, tokens a second of decoding", title_justify="left")
    for name in (
        "suite",
        "B",
        "T",
        "G",
        "plain",
        "SpS",
        "ratio",
        "median",
        "tokens a round",
        "rolled back",
        "same",
    ):
        table.add_column(name, justify="left" if name == "suite" else "right")
    for case in found:
        fast = case["SpS"]
        table.add_row(
            case["suite"],
            str(case["batch"]),
            str(case["temperature"]),
            str(case["draft_length"]),
            f"{case['plain']['tokens_a_second']:.2f}",
            f"{fast['tokens_a_second']:.2f}",
            f"{case['ratio_of_totals']:.3f}",
            f"{case['median_ratio']:.3f}",
            f"{fast['mean_accepted_length']:.2f}",
            f"{fast['rollback']:.0%}",
            f"{case['rows'] - len(case['differences'])} of {case['rows']}",
        )
    return table
