"""Checks of settings that several methods share."""

import math


def integer(name: str, value, least: int, hint: str = "") -> None:
    """Raises ValueError unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}{hint}")


def draft_length(value) -> None:
    """Raises ValueError unless ``value`` is a positive integer or "auto"."""
    if value != "auto":
        integer("draft_length", value, 1, "; use Autoregressive() for 0")


def number(name: str, value, low: float, high: float) -> None:
    """Raises ValueError unless ``value`` is a number in ``[low, high]``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not (math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{name} must be in [{low}, {high}], got {value}")
