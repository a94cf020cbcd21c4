"""A scene as a PNG, drawn by matplotlib."""

from pathlib import Path

import numpy as np

from trace_drawing.palette import FILLS, INK, INKS, PAPER
from trace_drawing.scene import Box, Label, Line, Scene

_FONT, _DPI, _MARGIN = "DejaVu Sans Mono", 100, 16


def require() -> None:
    """Raises ValueError if matplotlib is not installed; says how to install it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "the PNG needs matplotlib: pip install 'sbjax[plot]', or pass --no-png for the HTML page alone"
        ) from error


def write(scene: Scene, path: Path) -> None:
    """Writes the scene, one pixel a pixel, on white."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image  # matplotlib depends on it

    width, height = scene.width + 2 * _MARGIN, scene.height + 2 * _MARGIN
    with rc_context({"hatch.linewidth": 0.8}):
        figure = Figure((width / _DPI, height / _DPI), dpi=_DPI, facecolor=PAPER)
        canvas = FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1), xlim=(-_MARGIN, scene.width + _MARGIN))
        axes.set_ylim(scene.height + _MARGIN, -_MARGIN)
        axes.axis("off")
        pen = _Pen(axes)
        for item in scene.items:
            pen.draw(item)
        canvas.draw()
    # A palette makes the file a third as large; there are few colours.
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    work = path.with_name(path.name + ".partial")
    picture.quantize(128, dither=Image.Dither.NONE).save(work, format="PNG", optimize=True)
    work.replace(path)


class _Pen:
    """Puts items on the axes."""

    def __init__(self, axes):
        from matplotlib.font_manager import FontProperties, findfont, get_font

        self._axes = axes
        self._glyphs = set(get_font(findfont(FontProperties(family=_FONT))).get_charmap())

    def draw(self, item: Box | Label | Line) -> None:
        """Draws one item."""
        if isinstance(item, Line):
            ink = INKS[item.ink][0]
            self._axes.plot(
                [item.x1, item.x2],
                [item.y1, item.y2],
                color=ink,
                linewidth=item.width * 0.72,
                solid_capstyle="projecting",
                alpha=0.5 if item.ink == "quiet" else 1,
            )
        elif isinstance(item, Label):
            side, weight = ("right" if item.right else "left"), ("bold" if item.bold else "normal")
            self._text(item.x, item.y, item.text, INKS[item.ink][0], item.size, side, weight)
        else:
            self._box(item)

    def _box(self, box: Box) -> None:
        from matplotlib.patches import Rectangle

        fill = FILLS[box.kind]
        corner = (box.x, box.y)
        self._axes.add_patch(Rectangle(corner, box.width, box.height, facecolor=fill.colour, linewidth=0))
        if fill.hatch:
            lines = {"fill": False, "hatch": "////", "edgecolor": fill.hatch, "linewidth": 0, "alpha": 0.35}
            self._axes.add_patch(Rectangle(corner, box.width, box.height, **lines))
        colour = "#ffffff" if box.kind == "badge" else INK
        self._text(
            box.x + box.width / 2, box.y + box.height / 2, box.text, colour, box.size, "center", "normal"
        )

    def _text(self, x: float, y: float, text: str, colour: str, size: float, side: str, weight: str) -> None:
        if not text:
            return
        self._axes.text(
            x,
            y,
            "".join(c if ord(c) in self._glyphs else "\u25af" for c in text),
            color=colour,
            fontsize=size * 72 / _DPI,
            family=_FONT,
            weight=weight,
            horizontalalignment=side,
            verticalalignment="center_baseline",
            parse_math=False,
        )
