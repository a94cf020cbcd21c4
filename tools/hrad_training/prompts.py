"""What rounds are recorded on: prompts of files, or slices of Python sources that the pair has not seen."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from command_line.prompt_files import as_chat, read_prompts
from pair_training.corpus import read_corpus

import sbjax
from sbjax.prompts import token_lists


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Prompts as token ids.

    Attributes:
      ids: every prompt.
      groups: the group of every prompt: slices of one file are one group, which is never split between
        what is trained on and what is measured on.
    """

    ids: list[list[int]]
    groups: list[int]

    def fingerprint(self) -> str:
        """A hash, to tell whether two runs have the same prompts."""
        return hashlib.sha256(repr((self.ids, self.groups)).encode()).hexdigest()


def from_files(
    paths: Sequence[Path],
    tokenizer: sbjax.Tokenizer,
    *,
    field: str | None,
    chat: bool,
    longest: int,
    count: int,
    seed: int,
) -> Prompts:
    """A random choice of the prompts of files, each a group of its own.

    Args:
      paths: as for ``prompt_files.read_prompts``.
      tokenizer: the target's.
      field: of .jsonl files.
      chat: whether texts are messages of a user.
      longest: prompts of more tokens are left out.
      count: how many at most.
      seed: of the choice.

    Raises:
      ValueError: no prompt is short enough, or a file is not readable as prompts.
    """
    prompts = [prompt for path in paths for prompt in read_prompts(path, field)]
    if chat:
        prompts = [as_chat(prompt) for prompt in prompts]
    ids = token_lists(prompts, tokenizer, tokenizer.vocab_size)
    fitting = [number for number, prompt in enumerate(ids) if len(prompt) <= longest]
    if not fitting:
        raise ValueError(f"none of the {len(ids)} prompts has at most {longest} tokens (--prompt-tokens)")
    order = np.random.default_rng(seed).permutation(fitting)[:count].tolist()
    return Prompts([ids[number] for number in order], order)


def from_sources(folder: Path, tokenizer: sbjax.Tokenizer, *, longest: int, count: int, seed: int) -> Prompts:
    """Slices of the Python files that ``tools/train_pair.py`` holds out; a file is a group.

    Args:
      folder: of the sources.
      tokenizer: the target's.
      longest: tokens of a slice.
      count: how many slices at most.
      seed: of the choice.

    Raises:
      ValueError: there are no such files, or none is long enough.
    """
    slices = []
    for group, document in enumerate(read_corpus(folder).held_out):
        ids = tokenizer.encode(document, add_special_tokens=False)
        slices += [(group, ids[i : i + longest]) for i in range(0, len(ids) - longest + 1, longest)]
    if not slices:
        raise ValueError(f"{folder}: no held-out file has {longest} tokens (--prompt-tokens)")
    order = np.random.default_rng(seed).permutation(len(slices))[:count]
    chosen = [slices[number] for number in order]
    return Prompts([ids for _, ids in chosen], [group for group, _ in chosen])
