"""Typed reads from a parsed config.json: a wrong value is refused by its key."""

import math
from typing import Any

from sbjax.models.config import UnsupportedModel


def size(
    settings: dict[str, Any],
    key: str,
    default: int | None = None,
    *,
    null: int | None = None,
    least: int = 1,
) -> int:
    """Reads a whole number of at least ``least``.

    Args:
      settings: where ``key`` may be.
      key: its name.
      default: the value where the key is missing; None means it must be there.
      null: the value where it is null, taken as it is; None means it must not be.
      least: the smallest value allowed.

    Raises:
      UnsupportedModel: names the key and the value.
    """
    value = settings.get(key, default)
    if value is None and null is not None:
        return null
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UnsupportedModel(
            f"config.json: {key} must be a whole number of at least {least}, got {value!r}"
        )
    return value


def number(settings: dict[str, Any], key: str, default: float | None = None) -> float:
    """Reads a positive finite number; ``default`` where it is missing or null.

    Raises:
      UnsupportedModel: names the key and the value.
    """
    value = settings.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UnsupportedModel(f"config.json: {key} must be a positive number, got {value!r}")
    return float(value)
