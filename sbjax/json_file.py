"""Reading one JSON object from a file, with errors that name the file."""

import json
from pathlib import Path
from typing import Any


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
      path: the file.

    Returns:
      The object as a dict; an empty one if there is no such file.

    Raises:
      ValueError: the file is not JSON, or its top level is not an object.
    """
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError are both ValueErrors
        raise ValueError(f"{path} is not valid JSON (damaged or cut short?): {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a {type(value).__name__}, a JSON object was expected")
    return value
