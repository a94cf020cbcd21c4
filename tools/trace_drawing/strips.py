"""The timeline of a row: a lane for the target, a line for every branch of the draft, in strips.

A round never breaks at the end of a strip. A lane's bar is as long as its work, and is cut into one cell
a token.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from sbjax.trace import HIT, HIT_HEDGE, MISS, Row, RowRound, Trace
from trace_drawing import cells
from trace_drawing.cells import Cell
from trace_drawing.scene import CHARACTER, Box, Label, Line, Scene, fitted
from trace_drawing.timeline import Placed, Timeline
from trace_drawing.words import branch_title, round_title, visible

_GUTTER, _CELL, _BADGE, _HEADER = 84, 42, 15, 90
_TOP, _TARGET, _BRANCH, _GAP, _TICKS, _BETWEEN = 19, 26, 20, 5, 16, 16
_LONGEST, _LEAST = 1.5, 3  # usual rounds: how long one is drawn at most, how many a strip has at least
_INKS = {HIT: "hit", HIT_HEDGE: "hedge", MISS: "miss"}
_NAMES = {HIT: "hit", HIT_HEDGE: "hedge hit", MISS: "miss"}


class _Slot(NamedTuple):
    """A round with its place in a strip."""

    each: RowRound
    placed: Placed
    x: float
    scale: float
    shortened: bool

    @property
    def width(self) -> float:
        return (self.placed.end - self.placed.start) * self.scale

    def at(self, time: float) -> float:
        """The x coordinate of a time."""
        return self.x + (time - self.placed.start) * self.scale


def draw(trace: Trace, row: Row, timeline: Timeline, rounds: slice, width: float) -> Scene:
    """Draws the rounds of a row.

    Args:
      trace: the run.
      row: one of its rows.
      timeline: when what happened.
      rounds: which of the row's rounds.
      width: of the drawing.
    """
    strips = _strips(row, timeline, rounds, width)
    painter = _Painter(trace, row, timeline, width)
    items, y = [], 0.0
    for strip in strips:
        items += painter.strip(strip, y)
        y += painter.height + _BETWEEN
    return Scene(width, max(y - _BETWEEN, 0), items)


def _strips(row: Row, timeline: Timeline, rounds: slice, width: float) -> list[list[_Slot]]:
    """Places the rounds one behind the other, on as many strips as it takes."""
    chosen = [(each, timeline.rounds[each.round]) for each in row.rounds[rounds]]
    if not chosen:
        return []
    room = width - _GUTTER
    usual = statistics.median(placed.end - placed.start for _, placed in chosen)
    scale = statistics.median(_scale(each, placed) for each, placed in chosen)
    scale = room / usual / max(round(room / usual / scale), _LEAST)
    longest = min(room, _LONGEST * scale * usual)
    strips, x = [[]], 0.0
    for each, placed in chosen:
        time = placed.end - placed.start
        own = min(max(scale * time, _HEADER), longest)
        if strips[-1] and x + own > room + 1:
            strips.append([])
            x = 0.0
        strips[-1].append(_Slot(each, placed, _GUTTER + x, own / time, own < 0.99 * scale * time))
        x += own
    return strips


def _scale(each: RowRound, placed: Placed) -> float:
    """Pixels a unit of time that a round needs to be legible."""
    longest = max((len(branch.behind) + 1 for branch in each.branches), default=len(each.trunk))
    needs = [(_HEADER, placed.end - placed.start)]
    needs.append(
        (_CELL * (len(each.emitted) + len(each.refused_tokens)), placed.target[1] - placed.target[0])
    )
    needs.append((_CELL * longest + _BADGE, placed.draft[1] - placed.draft[0]))
    return max(pixels / time for pixels, time in needs if time > 0)


@dataclasses.dataclass(frozen=True)
class _Painter:
    """Draws strips.

    Attributes:
      trace: the run.
      row: the row.
      timeline: when what happened.
      width: of the drawing.
    """

    trace: Trace
    row: Row
    timeline: Timeline
    width: float

    @property
    def drafted(self) -> float:
        """Upper edge of the draft's lane in a strip."""
        return _TOP + _TARGET + _GAP

    @property
    def height(self) -> float:
        """Height of a strip."""
        return self.drafted + _BRANCH * self.trace.branches + _TICKS

    def strip(self, slots: Sequence[_Slot], y: float) -> list[Box | Label | Line]:
        """One strip from ``y`` on."""
        items: list[Box | Label | Line] = self._gutter(y)
        for slot, following in zip(slots, [*slots[1:], None], strict=True):
            items += self._round(slot, y)
            if following is not None:
                items += self._handed_on(slot, y)
        last = slots[-1]
        items.append(Line(last.x + last.width, y + 4, last.x + last.width, y + self.height - _TICKS, "quiet"))
        return items

    def _gutter(self, y: float) -> list[Box | Label | Line]:
        names = [(_TOP + _TARGET / 2, "target")]
        lanes = ("draft",) if not self.trace.overlapped else ("draft: main", *["hedge"] * self.trace.branches)
        for k in range(self.trace.branches):
            names.append((self.drafted + _BRANCH * (k + 0.5), lanes[k] + (f" {k}" if k else "")))
        return [Label(_GUTTER - 8, y + middle, name, "quiet", right=True) for middle, name in names]

    def _round(self, slot: _Slot, y: float) -> list[Box | Label | Line]:
        each, placed, title = slot.each, slot.placed, round_title(self.trace, slot.each)
        items: list[Box | Label | Line] = [
            Line(slot.x, y + 4, slot.x, y + self.height - _TICKS, "quiet"),
            *self._header(slot, y, title),
            *self._idle(slot, placed.target, y + _TOP, _TARGET),
            *self._bar(slot, placed.target, y + _TOP, _TARGET, cells.checked(each), title),
        ]
        if self.trace.branches:
            lane = _BRANCH * self.trace.branches
            items += self._idle(slot, placed.draft, y + self.drafted, lane)
            if not self.trace.overlapped:
                items += self._bar(slot, placed.draft, y + self.drafted, _BRANCH, cells.chain(each), title)
        for k, one in enumerate(each.branches):
            found, place = cells.branch(each, k, one), y + self.drafted + _BRANCH * k
            about = branch_title(self.trace, k, one)
            items += self._bar(slot, placed.draft, place, _BRANCH, found, about, badge=str(one.fork))
        return items

    def _header(self, slot: _Slot, y: float, title: str) -> list[Box | Label | Line]:
        each, number = slot.each, str(slot.each.round + 1)
        if each.outcome:
            said, ink = f"+{len(each.emitted)} {_NAMES[each.outcome]}", _INKS[each.outcome]
        else:
            said, ink = f"+{len(each.emitted)}", "quiet"
            if each.trunk:
                said += f" ({each.accepted}/{each.drafted} accepted)"
        x, shown = slot.x + 4, fitted(said, slot.width - 12 - len(number) * CHARACTER * 11, 11)
        behind = x + CHARACTER * 11 * (len(number) + 0.8)
        time = f"{slot.placed.start:.0f} {self.timeline.unit}"
        if slot.shortened:
            time += f" (took {slot.placed.end - slot.placed.start:.0f}, drawn shorter)"
        return [
            Label(x, y + 10, number, bold=True, title=title),
            Label(behind, y + 10, shown, ink, title=title),
            Label(slot.x, y + self.height - 7, time, "quiet", size=10),
        ]

    def _idle(
        self, slot: _Slot, busy: tuple[float, float], y: float, height: float
    ) -> list[Box | Label | Line]:
        """The parts of a round in which a lane does not work."""
        parts = ((slot.placed.start, busy[0]), (busy[1], slot.placed.end))
        boxes = []
        for start, end in parts:
            width = (end - start) * slot.scale
            if width > 1:
                share = f"idle for {end - start:.3g} {self.timeline.unit}"
                text = "idle" if width > 40 else ""
                boxes.append(Box(slot.at(start), y + 1, width, height - 2, "idle", text, share))
        return boxes

    def _bar(
        self,
        slot: _Slot,
        busy: tuple[float, float],
        y: float,
        height: float,
        found: Sequence[Cell],
        title: str,
        badge="",
    ) -> list[Box | Label | Line]:
        """A lane's work with its tokens; a branch has its fork in front."""
        x, width = slot.at(busy[0]), (busy[1] - busy[0]) * slot.scale
        boxes = []
        if width <= 0:
            return boxes
        if badge:
            boxes.append(Box(x + 0.5, y + 1, _BADGE - 1, height - 2, "badge", badge, title, 10))
            x, width = x + _BADGE, width - _BADGE
        step = width / max(len(found), 1)
        for i, cell in enumerate(found):
            text = fitted(visible(self.trace.pieces[cell.token]), step - 4, 11)
            boxes.append(Box(x + i * step + 0.5, y + 1, step - 1, height - 2, cell.kind, text, title))
        return boxes

    def _handed_on(self, slot: _Slot, y: float) -> list[Box | Label | Line]:
        """A line from the surviving branch to the round in which the target checks it."""
        for k, one in enumerate(slot.each.branches):
            if one.survived:
                ink = _INKS[slot.each.outcome]
                end, middle = slot.x + slot.width, y + self.drafted + _BRANCH * (k + 0.5)
                if abs(_BRANCH * (k + 0.5 - self.trace.branches / 2)) < _BRANCH / 2:
                    middle -= _BRANCH / 2 - 3  # beside the word idle, not through it
                done = slot.at(slot.placed.draft[1])
                return [
                    Line(done, middle, end - 1, middle, ink, 2),
                    Line(end - 1, middle, end - 1, y + _TOP + _TARGET, ink, 2),
                ]
        return []
