"""A row of a trace as one drawing: heading, legend, text, timeline; what the PNG shows."""

from sbjax.trace import Row, Trace
from trace_drawing import strips, text_flow
from trace_drawing.html_page import guesses
from trace_drawing.palette import legend
from trace_drawing.scene import CHARACTER, Box, Label, Line, Scene, fitted, stack
from trace_drawing.timeline import Timeline
from trace_drawing.words import figures, heading, reading

_WIDTH, _SIZE = 1400, 12
MOST_ROUNDS = 60
"""In a picture, unless others are asked for: a longer one is neither looked at nor quickly made."""


def draw(trace: Trace, row: Row, timeline: Timeline, rounds: slice) -> Scene:
    """Draws a row.

    Args:
      trace: the run.
      row: one of its rows.
      timeline: when what happened.
      rounds: which of the row's rounds.
    """
    parts = [
        _heading(trace, row, timeline, rounds),
        _legend(trace),
        text_flow.draw(row, rounds, _WIDTH),
        strips.draw(trace, row, timeline, rounds, _WIDTH),
    ]
    return stack([part for part in parts if part.height], gap=14)


def _heading(trace: Trace, row: Row, timeline: Timeline, rounds: slice) -> Scene:
    shares = f"idle: target {timeline.idle('target'):.0%}"
    shares += f", draft {timeline.idle('draft'):.0%}" if trace.branches else ""
    lines = [figures(trace, row), f"{timeline.caption} \u00b7 {shares}"]
    if (shown := len(row.rounds[rounds])) < len(row.rounds):
        lines.append(f"only {shown} of {len(row.rounds)} rounds are shown")
    items: list[Box | Label | Line] = [Label(0, 9, fitted(heading(trace), _WIDTH, 16), size=16, bold=True)]
    lines += reading(trace)
    items += [
        Label(0, 33 + 20 * i, fitted(line, _WIDTH, _SIZE), "quiet", _SIZE) for i, line in enumerate(lines)
    ]
    return Scene(_WIDTH, 26 + 20 * len(lines), items)


def _legend(trace: Trace) -> Scene:
    items: list[Box | Label | Line] = []
    x, y = 0.0, 0.0
    for kind, meaning in legend(trace.overlapped, trace.branches, guesses(trace)):
        width = 28 + len(meaning) * CHARACTER * _SIZE + 22
        if x + width > _WIDTH:
            x, y = 0.0, y + 20
        items += [Box(x, y + 2, 22, 14, kind), Label(x + 28, y + 9, meaning, size=_SIZE)]
        x += width
    return Scene(_WIDTH, y + 18, items)
