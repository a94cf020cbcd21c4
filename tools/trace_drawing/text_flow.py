"""The text of a row as a drawing: every token on the colour of its origin."""

from sbjax.trace import Row
from trace_drawing.palette import ORIGIN_KINDS
from trace_drawing.scene import CHARACTER, Box, Label, Line, Scene, columns
from trace_drawing.words import visible

_SIZE, _LINE = 13, 20


def draw(row: Row, rounds: slice, width: float) -> Scene:
    """Draws the prompt and the tokens of some rounds.

    Args:
      row: the row.
      rounds: which of its rounds; the prompt is shown with the first one.
      width: of the drawing.
    """
    pen, place, chosen = _Pen(width), 0, {id(each) for each in row.rounds[rounds]}
    if rounds.start in (None, 0):
        pen.write(row.prompt_text, "prompt")
    for each in row.rounds:
        for origin in each.origins:
            if id(each) in chosen:
                pen.write(row.texts[place], ORIGIN_KINDS[origin])
            place += 1
    return Scene(width, pen.y + _LINE, pen.items)


class _Pen:
    """Writes tokens one behind the other; breaks where the text does and where the line is full."""

    def __init__(self, width: float):
        self.items: list[Box | Label | Line] = []
        self.y = 0.0
        self._column, self._columns = 0, int(width / (CHARACTER * _SIZE))

    def write(self, text: str, kind: str) -> None:
        """Writes a token; one without text of its own is only a mark."""
        part = ""
        for character in text or " ":
            shown = visible(character) if text else "\u2026"
            if self._column + columns(part + shown) > self._columns:
                part = self._put(part, kind)
                self._break()
            part += shown
            if character == "\n":
                part = self._put(part, kind)
                self._break()
        self._put(part, kind)

    def _put(self, part: str, kind: str) -> str:
        if part:
            step, wide = CHARACTER * _SIZE, columns(part)
            box = Box(self._column * step, self.y + 1, wide * step - 1, _LINE - 3, kind, part, size=_SIZE)
            self.items.append(box)
            self._column += wide
        return ""

    def _break(self) -> None:
        self._column, self.y = 0, self.y + _LINE
