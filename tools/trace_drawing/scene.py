"""A drawing as a list of boxes, labels and lines in pixels, for SVG and matplotlib alike."""

import dataclasses
import unicodedata

CHARACTER = 0.603
"""Width of a character in font sizes: of DejaVu Sans Mono, and about that of browsers' monospaced fonts."""


@dataclasses.dataclass(frozen=True)
class Box:
    """A rectangle with text in its middle.

    Attributes:
      x: left edge.
      y: upper edge.
      width: in pixels.
      height: in pixels.
      kind: a key of ``palette.FILLS``.
      text: one line that fits, see ``fitted``.
      title: shown by browsers on hover.
      size: of the font.
    """

    x: float
    y: float
    width: float
    height: float
    kind: str
    text: str = ""
    title: str = ""
    size: float = 11


@dataclasses.dataclass(frozen=True)
class Label:
    """Text without a box.

    Attributes:
      x: left end, or right end if ``right``.
      y: middle of the line.
      text: the text.
      ink: a key of ``palette.INKS``.
      size: of the font.
      bold: whether it is bold.
      right: whether the text ends at ``x``.
      title: shown by browsers on hover.
    """

    x: float
    y: float
    text: str
    ink: str = "plain"
    size: float = 11
    bold: bool = False
    right: bool = False
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Line:
    """A straight line; ``ink`` is a key of ``palette.INKS``."""

    x1: float
    y1: float
    x2: float
    y2: float
    ink: str
    width: float = 1


@dataclasses.dataclass(frozen=True)
class Scene:
    """A drawing: its size, and what is on it from back to front."""

    width: float
    height: float
    items: list[Box | Label | Line]


def stack(scenes: list[Scene], gap: float) -> Scene:
    """Scenes one below the other."""
    items, y = [], 0.0
    for scene in scenes:
        items += [_moved(item, y) for item in scene.items]
        y += scene.height + gap
    return Scene(max(scene.width for scene in scenes), y - gap, items)


def _moved(item: Box | Label | Line, down: float) -> Box | Label | Line:
    if isinstance(item, Line):
        return dataclasses.replace(item, y1=item.y1 + down, y2=item.y2 + down)
    return dataclasses.replace(item, y=item.y + down)


def columns(text: str) -> int:
    """Columns of a text in a monospaced font: wide characters take two, combining ones none."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, width: float, size: float) -> str:
    """As much of a text as fits into so many pixels, with an ellipsis if it was cut; maybe nothing."""
    room = int(width / (CHARACTER * size))
    if columns(text) <= room:
        return text
    if room < 2:
        return ""
    kept = ""
    for character in text:
        if columns(kept + character) > room - 1:
            break
        kept += character
    return kept + "\u2026"
