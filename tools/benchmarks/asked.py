"""What a benchmark was asked for: the pair, and methods by name."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import sbjax

T = TypeVar("T")


def load_pair(options: argparse.Namespace, dtype: str = "float32") -> tuple[sbjax.Model, sbjax.Model]:
    """Target and draft.

    Raises:
      ValueError: the target has no tokenizer for the prompts, or the draft another one.
    """
    target, draft = (sbjax.load(Path(folder), dtype) for folder in (options.target, options.draft))
    if target.tokenizer is None:
        raise ValueError(f"{options.target} has no tokenizer for the prompts")
    target.tokenizer.require_same(draft.tokenizer)
    return target, draft


def choose(every: Mapping[str, T], asked: Sequence[str] | None, always: str, where: str = "") -> dict[str, T]:
    """Some of what there is by name, in its order.

    Args:
      every: what there is.
      asked: what is wanted; None wants all.
      always: what is wanted beside it, since the others are compared with it.
      where: for the message, why there is no more.

    Raises:
      ValueError: a name is unknown.
    """
    wanted = [always, *(asked or every)]
    if unknown := [name for name in wanted if name not in every]:
        raise ValueError(f"there is no method {unknown[0]!r}{where}; there are {', '.join(every)}")
    return {name: each for name, each in every.items() if name in wanted}
