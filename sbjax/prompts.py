"""What a caller may pass as prompts: text, chat messages or token ids, one or many."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sbjax.text import Tokenizer

Prompt = str | Sequence[int] | Sequence[Mapping[str, Any]]
"""A text, token ids, or a conversation of messages with role and content."""


def token_lists(prompts: Prompt | Sequence[Prompt], tokenizer: Tokenizer | None, vocab_size: int):
    """Turns prompts into token ids.

    Args:
      prompts: one prompt or a sequence of them.
      tokenizer: the target's; None if prompts are token ids only.
      vocab_size: ``V``, what ids must stay below.

    Returns:
      A list of token ids for every prompt.

    Raises:
      TypeError: if something is no prompt.
      ValueError: if a prompt is empty, an id is outside the vocabulary, or text comes without a tokenizer.
    """
    many = list(prompts) if _is_many(prompts) else [prompts]
    if not many:
        raise ValueError("there are no prompts: pass at least one")
    return [_tokens(prompt, index, tokenizer, vocab_size) for index, prompt in enumerate(many)]


def _is_many(prompts: Any) -> bool:
    """Whether this is a sequence of prompts, not one prompt."""
    if isinstance(prompts, str | Mapping):
        return False
    if isinstance(prompts, np.ndarray):
        return prompts.ndim > 1
    if not isinstance(prompts, Sequence):
        raise TypeError(f"prompts are text, token ids, chat messages or a list of these, not {prompts!r}")
    return len(prompts) == 0 or not isinstance(prompts[0], int | np.integer | Mapping)


def _tokens(prompt: Any, index: int, tokenizer: Tokenizer | None, vocab_size: int) -> list[int]:
    """The ids of prompt number ``index``."""
    wrong_kind = TypeError(f"prompt {index} is neither text, chat messages nor a flat list of token ids")
    if not isinstance(prompt, Sequence | np.ndarray):
        raise wrong_kind
    if isinstance(prompt, str) or (len(prompt) and isinstance(prompt[0], Mapping)):
        if tokenizer is None:
            raise ValueError(f"prompt {index} is text, but the target has no tokenizer: pass token ids")
        ids = tokenizer.encode(prompt) if isinstance(prompt, str) else tokenizer.chat(prompt)
    else:
        ids = prompt
    try:
        array = np.asarray(ids)
    except ValueError:  # nested, with unlike lengths
        raise wrong_kind from None
    if array.size == 0:
        raise ValueError(f"prompt {index} is empty: a model needs at least one token to start from")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise wrong_kind
    if array.min() < 0 or array.max() >= vocab_size:
        wrong = array[(array < 0) | (array >= vocab_size)][0]
        raise ValueError(f"prompt {index} has token id {wrong}, outside the vocabulary of {vocab_size}")
    return array.tolist()
