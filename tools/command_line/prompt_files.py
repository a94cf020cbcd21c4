"""Prompts from files: a text file is one prompt, a .jsonl file one a line."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KNOWN_FIELDS = ("prompt", "question", "turns", "messages", "text")
"""Where a prompt is looked for: HumanEval, GSM8K, MT-Bench (its first turn), conversations, others."""


def read_prompts(path: Path, field: str | None = None) -> list[Any]:
    """Reads the prompts of a file.

    Args:
      path: a .jsonl file, any other file for a single prompt, or "-" for a single prompt on stdin.
      field: the field of a .jsonl file that holds the prompt; None takes the first of ``KNOWN_FIELDS``.

    Returns:
      Texts, conversations or lists of token ids.

    Raises:
      ValueError: a line is no JSON object, or has no such field; the message names file and line.
    """
    if str(path) == "-":
        return [sys.stdin.read()]
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".jsonl":
        return [content]
    lines = [(number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    return [_prompt(line, f"{path}, line {number}", field) for number, line in lines]


def _prompt(line: str, where: str, field: str | None) -> Any:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: no JSON: {error}") from error
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where}: a JSON object is expected, not {type(entry).__name__}")
    name = field or next((known for known in KNOWN_FIELDS if known in entry), None)
    if name is None or name not in entry:
        raise ValueError(
            f"{where}: there is no field {name or ' or '.join(KNOWN_FIELDS)}, only {', '.join(entry)}"
        )
    value = entry[name]
    if isinstance(value, list) and value and isinstance(value[0], str):
        value = value[0]  # several turns of a user: the first one
    if not isinstance(value, str | list):
        raise ValueError(f"{where}: {name} is neither text, messages nor token ids")
    return value


def as_chat(prompt: Any, system: str | None = None) -> Any:
    """A text as the user's message of a conversation; conversations and token ids stay as they are."""
    if not isinstance(prompt, str):
        return prompt
    start = [] if system is None else [{"role": "system", "content": system}]
    return [*start, {"role": "user", "content": prompt}]
