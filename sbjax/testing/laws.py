"""The exact law of a table model's text, in numpy float64 with sorts: shares no code with the engine."""

from collections.abc import Mapping, Sequence

import numpy as np

Law = dict[tuple[int, ...], float]
"""Probability of every text."""


def next_law(logits: np.ndarray, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> np.ndarray:
    """Probabilities ``[V]`` float64 of the next token: temperature, then top-k, then top-p.

    Tokens that tie with the last kept one are kept. At temperature 0 the smallest of the best ids.

    Args:
      logits: ``[V]``; minus infinity is allowed.
      temperature: 0 is greedy.
      top_k: 0 keeps all.
      top_p: a token is kept if the tokens above it hold less than this share of what top-k left.
    """
    logits = np.asarray(logits, np.float64)
    if temperature == 0:
        return np.eye(len(logits))[np.argmax(logits)]
    law = np.exp((logits - logits.max()) / temperature)
    if top_k:
        law = np.where(law >= np.sort(law)[::-1][min(top_k, len(law)) - 1], law, 0)
    law = law / law.sum()
    if top_p < 1:
        above = np.array([law[law > one].sum() for one in law])
        law = np.where(above < top_p, law, 0)
    return law / law.sum()


def joint_law(
    table: np.ndarray,
    prompt: Sequence[int],
    new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    stop_ids: Sequence[int] = (),
) -> Law:
    """The law of the text that a ``TableModel`` continues a prompt with.

    Args:
      table: ``[V, V, V]`` logits, the model's ``params["table"]``.
      prompt: token ids.
      new_tokens: length of a text that no stop token ends.
      temperature: see ``next_law``.
      top_k: see ``next_law``.
      top_p: see ``next_law``.
      stop_ids: tokens that end a text, which includes them.

    Returns:
      The probability of every text that has one.
    """
    table, law = np.asarray(table), {(): 1.0}
    for _ in range(new_tokens):
        longer: Law = {}
        for text, weight in law.items():
            if text and text[-1] in stop_ids:
                longer[text] = weight
                continue
            before, last = (0, *prompt, *text)[-2:]
            chances = next_law(table[before, last], temperature, top_k, top_p)
            longer |= {(*text, token): weight * p for token, p in enumerate(chances) if p > 0}
        law = longer
    return law


def total_variation(first: Mapping, second: Mapping) -> float:
    """Half the sum of the absolute differences of two laws."""
    return sum(abs(first.get(key, 0) - second.get(key, 0)) for key in first.keys() | second.keys()) / 2
