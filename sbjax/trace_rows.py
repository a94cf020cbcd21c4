"""What a round was for one row, read off the states before and after it."""

import dataclasses
from typing import Any

import numpy as np

from sbjax.engine import Engine
from sbjax.trace import (
    DRAFT,
    HEDGE,
    HIT,
    HIT_HEDGE,
    MAIN_HEAD,
    MISS,
    NO_BRANCHES,
    TARGET,
    Branch,
    RowRound,
)

_COUNTS = ("drafted", "rolled_back", "trimmed", "kept", "dropped")


@dataclasses.dataclass(frozen=True)
class RowReader:
    """Reads a round.

    Attributes:
      engine: the static part.
      row: the row, which was alive before the round.
      before: host copies of the state's "text", "length", "status" and "statistics", and its "line" as
        "tokens", "length" and "trunk", or None.
      after: likewise.
      written: what the draft wrote: with overlap "live", "fork", "head", "length" and the tokens "behind"
        of the ``Branches``; "trunk" of a chain; nothing where that is not known.
    """

    engine: Engine
    row: int
    before: dict[str, Any]
    after: dict[str, Any]
    written: dict[str, np.ndarray]

    def read(self, index: int) -> RowRound:
        """The round as an event."""
        emitted = self.after["text"][
            self.row, self.before["length"][self.row] : self.after["length"][self.row]
        ]
        emitted, outcome, verdicts = emitted.tolist(), self._outcome(), self._rise("verdicts")
        counts = {name: int(self._rise(name)) for name in _COUNTS}
        origins = self._origins(len(emitted), outcome)
        accepted = origins.count(DRAFT)
        trunk, head, branches = self._overlapped() if self.engine.method.overlapped else self._serial()
        missed = self.engine.method.overlapped and outcome not in (HIT, HIT_HEDGE)
        return RowRound(
            round=index,
            # What became text is certain; the second run of the draft could differ by a near-tie.
            trunk=[*emitted[:accepted], *trunk[accepted:]],
            head=head,
            emitted=emitted,
            origins=origins,
            refused=counts["rolled_back"] - (counts["drafted"] if missed else 0),
            outcome=outcome,
            branches=branches,
            verdict=int(np.argmax(verdicts)) if verdicts.any() else None,
            **counts,
        )

    def _rise(self, name: str) -> np.ndarray:
        """What the round added to a counter of the row."""
        after, before = (getattr(each["statistics"], name)[self.row] for each in (self.after, self.before))
        return after - before

    def _outcome(self) -> str:
        for name, outcome in (("hits_main", HIT), ("hits_hedge", HIT_HEDGE), ("misses", MISS)):
            if self._rise(name):
                return outcome
        return NO_BRANCHES

    def _origins(self, emitted: int, outcome: str) -> list[str]:
        """Accepted tokens first, with overlap the main head as the last of them; then the target's own."""
        accepted = int(self._rise("accepted").sum())
        origins = [DRAFT] * accepted
        if self.engine.method.overlapped and accepted > self.before["line"]["trunk"][self.row]:
            origins[-1] = MAIN_HEAD
        last = HEDGE if outcome == HIT_HEDGE else TARGET
        return origins + [last] * (emitted - accepted)

    def _serial(self) -> tuple[list[int], None, list[Branch]]:
        """The chain; nothing is known of it where there is no draft model."""
        if not self.written:
            return [], None, []
        return self.written["trunk"][self.row, : self._rise("drafted")].tolist(), None, []

    def _overlapped(self) -> tuple[list[int], int | None, list[Branch]]:
        """The trunk and the head of the line, and the branches."""
        line = {name: value[self.row] for name, value in self.before["line"].items()}
        ran = self.written["live"][self.row]
        trunk = line["tokens"][: line["trunk"]].tolist()
        head = int(line["tokens"][line["trunk"]]) if line["length"] else None
        if head is None and ran[0]:
            head = int(self.written["head"][self.row, 0])
        started = max(int(line["length"] - line["trunk"]) - 1, 0)
        return trunk, head, [self._branch(k, started if k == 0 else 0) for k in np.flatnonzero(ran).tolist()]

    def _branch(self, branch: int, head_start: int) -> Branch:
        one = {name: value[self.row, branch] for name, value in self.written.items()}
        return Branch(
            fork=int(one["fork"]),
            head=int(one["head"]),
            behind=one["behind"][: one["length"]].tolist(),
            head_start=head_start,
            survived=self._survived(int(one["fork"]), int(one["head"]), branch),
        )

    def _survived(self, fork: int, head: int, branch: int) -> bool:
        """Whether the outcome is (fork, head); the text shows it unless it ended before."""
        outcome = self._outcome()
        if outcome == NO_BRANCHES or outcome == MISS or (outcome == HIT) != (branch == 0):
            return False
        emitted = int(self.after["length"][self.row] - self.before["length"][self.row])
        last = int(self.after["text"][self.row, self.after["length"][self.row] - 1])
        return branch == 0 or (emitted == fork + 1 and head == last)
