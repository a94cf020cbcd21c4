"""What happened in a run, round by round, with the origin of every token: plain events, JSON out and in.

A ``recording.Recorder`` makes a ``Trace`` of a run. It holds no arrays and needs no models, so that it can be
looked at later and on another machine.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from sbjax.json_file import read_json

VERSION = 1
"""Of the file format."""

DRAFT, MAIN_HEAD, HEDGE, TARGET = "draft", "main head", "hedge", "target"
ORIGINS = (DRAFT, MAIN_HEAD, HEDGE, TARGET)
"""Where an emitted token came from: an accepted token of the trunk; the main branch's head; the head of
another branch; the target alone, as after a miss, and in serial methods behind every trunk.
"""

HIT, HIT_HEDGE, MISS, NO_BRANCHES = "hit", "hedge", "miss", ""
OUTCOMES = (HIT, HIT_HEDGE, MISS, NO_BRANCHES)
"""Which branch a round's outcome was: the main one, another one, none of them; or there were none."""


@dataclasses.dataclass(frozen=True)
class Branch:
    """A branch that was drafted in a round; the first one of a round is the main one.

    Attributes:
      fork: trunk tokens that it builds on.
      head: its first token.
      behind: the tokens behind the head, those of the head start first.
      head_start: how many tokens behind the head were there before the round.
      survived: whether it was the outcome.
    """

    fork: int
    head: int
    behind: list[int]
    head_start: int
    survived: bool


@dataclasses.dataclass(frozen=True)
class RowRound:
    """What a round was for one row; counts are what it added to ``Statistics``.

    Attributes:
      round: index into ``Trace.rounds``.
      trunk: the tokens that the target checked. Of a method without a draft model only those that
        became text are known.
      head: the main head, which the target's last row is compared with; None in serial methods and where
        the draft could not go on.
      emitted: tokens that became text.
      origins: one of ``ORIGINS`` for each of them.
      refused: how many tokens at the end of trunk and head the target refused, or were behind one.
      outcome: one of ``OUTCOMES``.
      branches: those that were drafted, the main one first.
      drafted: tokens drafted on the main line.
      rolled_back: tokens refused, and the continuation that was lost on a miss.
      trimmed: tokens of the line that were lost without having been checked.
      kept: tokens of the next line that became the next trunk.
      dropped: tokens of the next line that could have, and were left out.
      verdict: H-RAD's, 0 to 2; None where it did not speak.
    """

    round: int
    trunk: list[int]
    head: int | None
    emitted: list[int]
    origins: list[str]
    refused: int
    outcome: str
    branches: list[Branch]
    drafted: int
    rolled_back: int
    trimmed: int
    kept: int
    dropped: int
    verdict: int | None

    @property
    def accepted(self) -> int:
        """Drafted tokens that became text, the main head included; as ``Statistics.accepted``."""
        return sum(origin in (DRAFT, MAIN_HEAD) for origin in self.origins)

    @property
    def refused_tokens(self) -> list[int]:
        """The tokens that ``refused`` counts, where they are known."""
        known = self.trunk if self.head is None else [*self.trunk, self.head]
        return known[max(len(known) - self.refused, 0) :] if self.refused else []

    @property
    def ids(self) -> set[int]:
        """All tokens that occur."""
        head = set() if self.head is None else {self.head}
        branches = {token for branch in self.branches for token in (branch.head, *branch.behind)}
        return {*self.trunk, *self.emitted} | head | branches


@dataclasses.dataclass(frozen=True)
class Round:
    """What a round was for the whole batch.

    Attributes:
      target_width: tokens a row in the target's forward.
      draft_forwards: forwards of the draft, each over all branches.
      seconds: wall time of the round.
      draft_seconds: wall time of the draft's part alone, run a second time by itself.
    """

    target_width: int
    draft_forwards: int
    seconds: float
    draft_seconds: float


@dataclasses.dataclass(frozen=True)
class Row:
    """One continuation.

    Attributes:
      prompt: token ids of the prompt.
      prompt_text: its text.
      texts: the text of every emitted token, in the order of ``rounds``; joined they are the whole text. A
        token that only begins a character has an empty one.
      finish_reason: as in ``Generation``.
      rounds: the rounds in which the row was alive.
    """

    prompt: list[int]
    prompt_text: str
    texts: list[str]
    finish_reason: str
    rounds: list[RowRound]

    @property
    def tokens(self) -> list[int]:
        """All emitted tokens."""
        return [token for each in self.rounds for token in each.emitted]

    @property
    def origins(self) -> list[str]:
        """Where each of them came from."""
        return [origin for each in self.rounds for origin in each.origins]


@dataclasses.dataclass(frozen=True)
class Trace:
    """A run.

    Attributes:
      method: name of the method.
      settings: its settings.
      rule: "match", "token" or "block".
      overlapped: whether draft and target can work at the same time.
      branches: ``K``; 1 for a chain, 0 without a draft model.
      rounds: all rounds of the batch.
      rows: its continuations.
      pieces: the text of every token id that occurs, taken by itself.
    """

    method: str
    settings: dict[str, Any]
    rule: str
    overlapped: bool
    branches: int
    rounds: list[Round]
    rows: list[Row]
    pieces: dict[int, str]

    def save(self, path: str | Path) -> None:
        """Writes the trace as JSON; the file is replaced as a whole."""
        path = Path(path)
        work = path.with_name(path.name + ".partial")
        content = {"sbjax_trace": VERSION, **dataclasses.asdict(self)}
        work.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
        work.replace(path)

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """Reads what ``save`` wrote.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: it is no trace, is damaged, or was written in another format.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: there is no such file")
        content = read_json(path)
        if (version := content.pop("sbjax_trace", None)) != VERSION:
            found = "is no trace" if version is None else f"is a trace of format {version}"
            raise ValueError(f"{path} {found}; format {VERSION} is read, written by tools/trace_view.py")
        try:
            return _trace(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is a damaged trace: {error!r}") from error


def _trace(content: dict[str, Any]) -> Trace:
    rounds = [Round(**each) for each in content.pop("rounds")]
    rows = [_row(each) for each in content.pop("rows")]
    pieces = {int(token): str(text) for token, text in content.pop("pieces").items()}
    return Trace(**content, rounds=rounds, rows=rows, pieces=pieces)


def _row(content: dict[str, Any]) -> Row:
    rounds = []
    for each in content.pop("rounds"):
        branches = [Branch(**branch) for branch in each.pop("branches")]
        rounds.append(RowRound(**each, branches=branches))
    return Row(**content, rounds=rounds)
