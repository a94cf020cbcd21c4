"""When draft and target work in every round: on measured or on modelled time.

Modelled, each model has a device of its own and a round takes

    with overlap   max(t_target(T), F * t_draft(K))    the quicker model is idle for the rest
    serial         F * t_draft(1) + t_target(T)        the models take turns

with ``T`` the width of the round's target forward, ``F`` its draft forwards and ``K`` branches.
"""

import dataclasses
from collections.abc import Callable

from sbjax.trace import Trace

Cost = float | Callable[[int], float]
"""Time of a step: a number, or a function of its width (``T`` of a target forward, ``K`` of a draft step)."""


@dataclasses.dataclass(frozen=True)
class Placed:
    """When a round happened; all times in the timeline's unit.

    Attributes:
      start: of the round.
      end: of the round.
      draft: when the draft worked: start and end, the same if it did not.
      target: likewise.
    """

    start: float
    end: float
    draft: tuple[float, float]
    target: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Timeline:
    """All rounds of a trace in time.

    Attributes:
      rounds: one a round of the trace.
      unit: of all times.
      caption: what kind of time it is.
    """

    rounds: list[Placed]
    unit: str
    caption: str

    def idle(self, lane: str) -> float:
        """Share of the time in which "draft" or "target" did not work."""
        whole = sum(each.end - each.start for each in self.rounds)
        busy = sum(getattr(each, lane)[1] - getattr(each, lane)[0] for each in self.rounds)
        return 1 - busy / whole if whole else 0.0


def measured(trace: Trace) -> Timeline:
    """Wall time: the models share a device and take turns.

    Only whole rounds are measured; the draft's share is what its part took when it was run by itself.
    """
    rounds, now = [], 0.0
    for each in trace.rounds:
        end, turn = now + each.seconds * 1e3, now + min(each.draft_seconds, each.seconds) * 1e3
        turn = turn if each.draft_forwards else now
        rounds.append(Placed(now, end, (now, turn), (turn, end)))
        now = end
    caption = "measured time: one device, the models take turns (the draft's share timed by itself)"
    return Timeline(rounds, "ms", caption)


def modelled(trace: Trace, target: Cost, draft: Cost = 1.0, unit: str = "draft steps") -> Timeline:
    """The time that the same rounds would take with a device for each model; see the module.

    Args:
      trace: the run.
      target: time of a target forward, by its width.
      draft: time of a draft step, by its branches.
      unit: in which the times are.

    Returns:
      The timeline.
    """
    rounds, now = [], 0.0
    for each in trace.rounds:
        checking = _cost(target, each.target_width)
        drafting = each.draft_forwards * _cost(draft, max(trace.branches, 1)) if each.draft_forwards else 0.0
        begin = now if trace.overlapped else now + drafting
        end = max(now + drafting, begin + checking)
        rounds.append(Placed(now, end, (now, now + drafting), (begin, begin + checking)))
        now = end
    price = (
        ""
        if callable(target) or callable(draft)
        else f", a target forward costs {target / draft:g} draft steps"
    )
    return Timeline(rounds, unit, f"MODELLED time, not measured: a device for each model{price}")


def _cost(cost: Cost, width: int) -> float:
    return float(cost(width)) if callable(cost) else float(cost)
