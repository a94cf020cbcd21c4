"""What stands in the lanes of a round: one cell a token, with its kind."""

from typing import NamedTuple

from sbjax.trace import HIT_HEDGE, MAIN_HEAD, MISS, Branch, RowRound
from trace_drawing.palette import ORIGIN_KINDS


class Cell(NamedTuple):
    """A token in a lane.

    Attributes:
      token: its id.
      kind: a key of ``palette.FILLS``.
    """

    token: int
    kind: str


def checked(each: RowRound) -> list[Cell]:
    """The target's lane: what became text, then what was refused, then what lies behind the end."""
    text = zip(each.emitted, each.origins, strict=True)
    cells = [Cell(token, ORIGIN_KINDS[origin]) for token, origin in text]
    refused, behind_end = each.refused_tokens, []
    if len(each.emitted) == each.accepted and MAIN_HEAD not in each.origins:
        behind_end = each.trunk[each.accepted : len(each.trunk) - len(refused)]
    return [
        *cells,
        *(Cell(token, "refused") for token in refused),
        *(Cell(token, "lost") for token in behind_end),
    ]


def chain(each: RowRound) -> list[Cell]:
    """The draft's lane of a serial method: the trunk by what became of its tokens."""
    end = len(each.trunk) - len(each.refused_tokens)
    return [
        Cell(token, "draft" if i < each.accepted else "lost" if i < end else "refused")
        for i, token in enumerate(each.trunk)
    ]


def branch(each: RowRound, index: int, one: Branch) -> list[Cell]:
    """A branch's line: its head, a head start, what was drafted behind.

    On a miss the main branch is rolled back; the other branches that were not the outcome are not taken.
    """
    if one.survived:
        head, behind = ("main-head" if index == 0 else "hedge"), "draft"
    else:
        head = behind = "refused" if index == 0 and each.outcome == MISS else "lost"
        if index == 0 and each.outcome == HIT_HEDGE and one.head in each.refused_tokens[-1:]:
            head = "refused"
    return [Cell(one.head, head), *(Cell(token, behind) for token in one.behind)]
