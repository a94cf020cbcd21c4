"""Whether two tokenizers are the same, and how they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbjax.text.tokenizer import Tokenizer

# Encoded by both tokenizers where their files are of different kinds and cannot be compared as such.
_PROBES = (
    "The quick brown fox, 1234567 times; isn't it?\n",
    "  two  spaces\tand a tab \r\n\n   end ",
    "def f(x):\n    return x**2  # \u00e9t\u00e9 na\u00efve \u00dcber",
    "\u4f60\u597d\uff0c\u4e16\u754c \u043f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627",
    "\U0001f600\U0001f469\u200d\U0001f680 e\u0301 \u2581 \ufb01",
)


def difference(first: Tokenizer, second: Tokenizer) -> str | None:
    """Says how two tokenizers differ.

    Compared are the token of every id, then whatever decides how text is cut into tokens: the parts of the
    files where both are of one kind, otherwise the ids and texts of some sentences. What only adds special
    tokens around a prompt is not compared: a prompt is encoded once, for both models.

    Args:
      first: a tokenizer.
      second: another one.

    Returns:
      The first difference as part of a sentence, None if there is none.
    """
    if first.vocabulary != second.vocabulary:
        return _vocabulary_difference(first.vocabulary, second.vocabulary)
    if first.kind == second.kind and first.digest == second.digest:
        return None  # the usual case, at once
    if first.kind == second.kind:
        theirs = second.parts
        differing = [name for name, part in first.parts.items() if part != theirs.get(name)]
        return f"they differ in their {differing[0]}" if differing else None
    for probe in _PROBES:
        ids = first.encode(probe, add_special_tokens=False)
        if ids != second.encode(probe, add_special_tokens=False):
            return f"they cut the text {probe!r} into different tokens"
        if first.decode(ids) != second.decode(ids):
            return f"they turn the tokens of {probe!r} into different texts"
    return None


def _vocabulary_difference(first: dict[int, str], second: dict[int, str]) -> str:
    index = min(i for i in first.keys() | second.keys() if first.get(i) != second.get(i))
    left, right = (repr(tokens[index]) if index in tokens else "no token" for tokens in (first, second))
    return f"id {index} is {left} in one and {right} in the other ({len(first)} and {len(second)} tokens)"
