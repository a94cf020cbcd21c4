"""The shapes that are tuned for: known models, or sizes from the command line."""

import argparse
import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Model:
    """What the kernels see of a model: query heads, key/value heads, head width, vocabulary."""

    n: int
    m: int
    h: int
    v: int


PRESETS = {
    "llama-3.1-8b": Model(32, 8, 128, 128_256),
    "llama-3.1-70b": Model(64, 8, 128, 128_256),
    "qwen2.5-coder-1.5b": Model(12, 2, 128, 151_936),
    "qwen2.5-coder-0.5b": Model(14, 2, 64, 151_936),
}


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a kernel.

    Attributes:
      model: its heads and vocabulary.
      slots: ``S`` of the cache.
      tokens: ``T`` of a row or branch.
      branches: ``K`` of a row.
      own: ``W`` of a row or branch.
      rows: ``B``.
      dtype: of queries, keys and values.
    """

    model: Model
    slots: int
    tokens: int
    branches: int
    own: int
    rows: int
    dtype: str


def model(text: str) -> Model:
    """A preset by its name, or sizes as ``n=32,m=8,h=128,v=128256``."""
    if text in PRESETS:
        return PRESETS[text]
    try:
        sizes = {name: int(size) for name, size in (word.split("=") for word in text.split(","))}
        found = Model(**sizes)
    except (ValueError, TypeError):
        raise argparse.ArgumentTypeError(
            f"a name of {', '.join(PRESETS)}, or n=..,m=..,h=..,v=.. is expected, got {text!r}"
        ) from None
    if min(sizes.values()) < 1 or found.n % found.m:
        raise argparse.ArgumentTypeError(f"m must divide n and all be at least 1, got {text!r}")
    return found


def calls(options: argparse.Namespace) -> Sequence[Call]:
    """Every call that the flags describe: all models with all slots, tokens and branches."""
    return [
        Call(each, slots, tokens, branches, options.own or max(tokens, 8), options.rows, options.dtype)
        for each in options.shape
        for slots in options.slots
        for tokens in options.tokens
        for branches in options.branches
    ]
