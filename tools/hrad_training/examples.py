"""Records as examples to learn from, and their parts: to train, to stop in time, to measure."""

import dataclasses

import numpy as np

from hrad_training.records import labels

VALIDATION, TEST = 0.15, 0.25
"""Shares of the groups."""


@dataclasses.dataclass(frozen=True)
class Examples:
    """Lines with what the target did with them.

    Attributes:
      inputs: ``[N, (F + 1) D]`` float16.
      confidence: ``[N, C]`` float32.
      length: ``[N]`` int32.
      label: ``[N]`` int32, the right verdict.
      temperature: ``[N]`` float32.
    """

    inputs: np.ndarray
    confidence: np.ndarray
    length: np.ndarray
    label: np.ndarray
    temperature: np.ndarray

    def __len__(self) -> int:
        return len(self.label)

    @classmethod
    def of(cls, records: np.ndarray) -> "Examples":
        """Reads records."""
        return cls(
            inputs=records["inputs"].reshape(len(records), -1),
            confidence=records["confidence"],
            length=records["length"],
            label=labels(records),
            temperature=records["temperature"],
        )


def split(records: np.ndarray, seed: int) -> dict[str, Examples]:
    """Splits records by their groups, so that no prompt is on both sides.

    Args:
      records: ``[N]``.
      seed: of the choice.

    Returns:
      ``training``, ``validation`` and ``test``.

    Raises:
      ValueError: there are too few groups.
    """
    groups = np.unique(records["group"])
    if len(groups) < 3:
        raise ValueError(
            f"the {len(records)} recorded lines come from {len(groups)} prompts or files; at least 3 are "
            "needed to train, to stop in time and to measure: give more prompts (--prompts, --prompt-file)"
        )
    order = np.random.default_rng(seed).permutation(groups)
    test = max(1, round(TEST * len(order)))
    validation = max(1, round(VALIDATION * len(order)))
    parts = {
        "test": order[:test],
        "validation": order[test : test + validation],
        "training": order[test + validation :],
    }
    return {name: Examples.of(records[np.isin(records["group"], part)]) for name, part in parts.items()}
