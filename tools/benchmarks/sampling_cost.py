"""``sampling-cost``: microseconds of a round whose models cost nothing, by vocabulary and settings."""

import argparse
import dataclasses
import functools
import statistics

import jax
import jax.numpy as jnp
from command_line.timing import seconds, turns
from rich.console import Console
from rich.table import Table

import sbjax
from benchmarks.results import Results

SETTINGS = {
    "T=0": {"temperature": 0.0},
    "T=1": {"temperature": 1.0},
    "T=1, top-k 50, top-p 0.9": {"temperature": 1.0, "top_k": 50, "top_p": 0.9},
}
_ROWS_OF_LOGITS = 8
_SECONDS_A_TURN = 0.4
_ROUNDS_AT_MOST = 2000  # keeps the text buffer short: its size must not be what is measured


@dataclasses.dataclass(frozen=True)
class _Case:
    """A compiled round and its sampling settings."""

    vocab_size: int
    method: sbjax.Method
    setting: str


def run(options: argparse.Namespace, results: Results, console: Console) -> None:
    """Measures; see the module."""
    found = []
    for vocab_size in options.vocab_size:
        methods = [
            sbjax.Autoregressive(),
            *(sbjax.SpS(draft_length=length) for length in options.draft_length),
            *(
                sbjax.SpecBranch(draft_length=length, branches=options.branches)
                for length in options.draft_length
            ),
        ]
        cases = [_Case(vocab_size, method, setting) for method in methods for setting in SETTINGS]
        runners = {case: _Rounds(case) for case in cases}
        times: dict[_Case, list[float]] = {case: [] for case in cases}
        for case in turns(cases, options.turns):
            times[case].append(runners[case]())
        for case in cases:
            found.append(
                {
                    "vocab_size": vocab_size,
                    "method": _label(case.method),
                    "draft_length": case.method.draft_length,
                    "setting": case.setting,
                    "microseconds_a_round": statistics.median(times[case]) * 1e6,
                    "turns": [time * 1e6 for time in times[case]],
                }
            )
        results.put(cases=found)
    console.print(_table(found))


@functools.cache  # the functions of a model are part of what is compiled
def table_model(vocab_size: int) -> sbjax.ApplyModel:
    """A model without weights to multiply: logits are one of a few rows, chosen by the last token."""

    def forward(params, tokens, positions, cache, mask):
        del params, positions, mask
        return tokens[..., None].astype(jnp.float32), cache

    def logits(params, hidden):
        return params["rows"][hidden[..., 0].astype(jnp.int32) % _ROWS_OF_LOGITS]

    spec = sbjax.CacheSpec(layers=0, kv_heads=1, head_dim=1)
    return sbjax.ApplyModel(forward, logits, spec, vocab_size, max_length=2**30)


class _Rounds:
    """Rounds of one case, ``_SECONDS_A_TURN`` of them a call; a call gives seconds a round."""

    def __init__(self, case: _Case):
        model = table_model(case.vocab_size)
        keys = jax.random.split(jax.random.key(0))
        shape = (_ROWS_OF_LOGITS, case.vocab_size)
        names = ("target", "draft") if case.method.draft_length else ("target",)
        self._params = {
            name: {"rows": 3 * jax.random.normal(key, shape)} for name, key in zip(names, keys, strict=False)
        }
        draft = model if case.method.draft_length else None
        self._engine = sbjax.Engine(model, draft, case.method, case.vocab_size)
        self._case = case
        self._rounds = 1
        self()
        self._rounds = min(max(1, int(_SECONDS_A_TURN / self())), _ROUNDS_AT_MOST)

    def __call__(self) -> float:
        state = sbjax.start(
            self._engine,
            self._params,
            [[1]],
            [_ROUNDS_AT_MOST * (self._engine.trunk_limit + 1)],
            sampling=sbjax.Sampling.create(1, **SETTINGS[self._case.setting]),
            noise=sbjax.KeyedNoise.create(jnp.zeros(1, jnp.uint32), jnp.zeros(1, jnp.uint32)),
        )
        time, _ = seconds(sbjax.run, self._engine, self._params, state, jnp.int32(self._rounds))
        return time / self._rounds


def _label(method: sbjax.Method) -> str:
    settings = [str(method.draft_length)] if method.draft_length else []
    settings += [f"K={method.branches}"] if method.overlapped else []
    return f"{type(method).__name__}({', '.join(settings)})"


def _table(found: list[dict]) -> Table:
    table = Table(
        title="Microseconds of a round with models that cost nothing, batch 1", title_justify="left"
    )
    table.add_column("vocabulary", justify="right")
    table.add_column("method")
    for setting in SETTINGS:
        table.add_column(setting, justify="right")
    rows: dict[tuple[int, str], list[str]] = {}
    for case in found:
        key = (case["vocab_size"], case["method"])
        rows.setdefault(key, []).append(f"{case['microseconds_a_round']:,.1f}")
    for (vocab_size, method), cells in rows.items():
        table.add_row(f"{vocab_size:,}", method, *cells)
    return table
