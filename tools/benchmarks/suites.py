"""Prompts of the benchmarks: a fixed random choice of each suite, for tuning and for reporting apart."""

import argparse
import dataclasses
from pathlib import Path

import numpy as np
from command_line.prompt_files import as_chat, read_prompts

import sbjax
from sbjax.prompts import token_lists


@dataclasses.dataclass(frozen=True)
class Suite:
    """Prompts of one file as token ids.

    Attributes:
      name: of the file.
      tuning: what settings are chosen on.
      reported: what figures are measured on; none of them is a tuning prompt.
      training: further ones, that something may learn from.
      numbers: which prompts of the file are reported.
    """

    name: str
    tuning: list[list[int]]
    reported: list[list[int]]
    training: list[list[int]]
    numbers: list[int]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(map(len, self.tuning + self.reported))


def read_suite(path: Path, tokenizer: sbjax.Tokenizer, options: argparse.Namespace) -> Suite:
    """Reads a suite.

    Args:
      path: a .jsonl file.
      tokenizer: the target's.
      options: ``field``, ``chat``, ``tune``, ``report``, ``max_prompt_tokens``; where they are there
        ``chat_suites``, the names of files to which ``chat`` applies anyway, and ``train``.

    Raises:
      ValueError: there are too few prompts that are short enough.
    """
    prompts = read_prompts(path, options.field)
    if options.chat or path.stem in getattr(options, "chat_suites", ()):
        prompts = [as_chat(prompt) for prompt in prompts]
    ids = token_lists(prompts, tokenizer, tokenizer.vocab_size)
    order = np.random.default_rng(0).permutation(len(ids))
    fitting = [int(number) for number in order if len(ids[number]) <= options.max_prompt_tokens]
    measured = options.tune + options.report
    wanted = measured + getattr(options, "train", 0)
    if len(fitting) < wanted:
        raise ValueError(
            f"{path} has {len(fitting)} prompts of at most {options.max_prompt_tokens} tokens, "
            f"{wanted} are needed"
        )
    reported = fitting[options.tune : measured]
    return Suite(
        path.stem,
        [ids[number] for number in fitting[: options.tune]],
        [ids[number] for number in reported],
        [ids[number] for number in fitting[measured:wanted]],
        reported,
    )
