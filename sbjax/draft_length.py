"""Draft length "auto": both models are measured once, and the length that fits their speeds is taken."""

import dataclasses
import statistics
from typing import Any

import jax

from sbjax.language_model import LanguageModel, Params
from sbjax.methods import Method
from sbjax.step_timing import SLOTS, Timer, draft_timer, target_timer

LONGEST = 16
"""The longest draft that "auto" chooses."""

ACCEPTANCE = 0.8
"""Share of drafted tokens that serial methods are assumed to have accepted, before anything is known."""

_WIDTH = 8  # what a trunk makes of a forward; on accelerators every width up to there costs the same
_TURNS = 3
_measured: dict[Any, tuple[float, float]] = {}


def resolve_draft_length(
    method: Method,
    target_model: LanguageModel,
    target_params: Params,
    draft_model: LanguageModel | None,
    draft_params: Params,
    *,
    rows: int = 1,
    slots: int = SLOTS,
) -> Method:
    """Replaces draft length "auto" by a number; any other method comes back as it is.

    Both models are measured, a few compiled steps each (compiling takes most of the time), and once only
    for the same models, placement, rows and branches in a process. Under the shared-noise rule the text
    does not depend on what comes out.

    Args:
      method: what is to be run.
      target_model: the target.
      target_params: its parameters, where they will be used.
      draft_model: the draft.
      draft_params: its parameters.
      rows: ``B`` of the run.
      slots: cache slots of the measurement.

    Returns:
      The method with ``fitting_length`` of the measured times.

    Raises:
      ValueError: if there is no draft to measure.
    """
    if method.draft_length != "auto":
        return method
    if draft_model is None:
        raise ValueError(f'{type(method).__name__} with draft_length "auto" needs a draft model to measure')
    branches = getattr(method, "branches", 1)
    key = (target_model, draft_model, rows, branches, slots, _places(target_params), _places(draft_params))
    if key not in _measured:
        _measured[key] = _measure(
            target_timer(target_model, target_params, _WIDTH, rows=rows, slots=slots),
            draft_timer(draft_model, draft_params, branches, rows=rows, slots=slots),
        )
    return dataclasses.replace(method, draft_length=fitting_length(method, *_measured[key]))


def fitting_length(method: Method, target_seconds: float, draft_seconds: float) -> int:
    """The draft length, 1 to ``LONGEST``, that fits two step times.

    With overlap it is the ratio of the times, rounded: draft and target then end a round together.
    Without overlap it is the length with the most expected tokens a time,
    ``(1 - a^(G+1)) / ((1 - a) (G t_draft + t_target))`` (arXiv 2211.17192), for an assumed acceptance
    ``a``: what AdaEDL steers to with its ``target_acceptance``, else ``ACCEPTANCE``.

    Args:
      method: decides by which rule.
      target_seconds: a target forward over a trunk.
      draft_seconds: a draft step of all branches.
    """
    lengths = range(1, LONGEST + 1)
    if method.overlapped:
        return min(max(round(target_seconds / draft_seconds), lengths[0]), lengths[-1])
    acceptance = getattr(method, "target_acceptance", ACCEPTANCE)

    def rate(length: int) -> float:
        tokens = sum(acceptance**accepted for accepted in range(length + 1))
        return tokens / (length * draft_seconds + target_seconds)

    return max(lengths, key=rate)


def _measure(target: Timer, draft: Timer) -> tuple[float, float]:
    """Medians of times that were taken in turns, so that a slow moment hits both."""
    pairs = [(target(), draft()) for _ in range(_TURNS)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def _places(params: Params) -> tuple:
    """Where parameters are; the same model elsewhere has times of its own."""
    return tuple(getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(params))
