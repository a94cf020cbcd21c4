"""A trace as one HTML page: no scripts, no other files, light and dark."""

from collections.abc import Iterator
from html import escape

from sbjax.trace import Row, RowRound, Trace
from trace_drawing import strips, svg
from trace_drawing.palette import DARK_INK, DARK_PAPER, INK, ORIGIN_KINDS, PAPER, legend
from trace_drawing.timeline import Timeline
from trace_drawing.words import branch_title, figures, heading, reading, round_title, tokens_shown

_WIDTH = 1400
_STYLE = f"""
:root{{color-scheme:light dark}}
body{{margin:1.5rem auto;padding:0 1rem;max-width:{_WIDTH}px;background:{PAPER};color:{INK};
  font:15px/1.5 system-ui,sans-serif}}
h1{{font-size:1.3rem;margin:0}} h2{{font-size:1.1rem;margin:2rem 0 .3rem}} p{{margin:.3rem 0}}
.wide{{overflow-x:auto}} svg{{display:block}}
svg text{{font-family:"DejaVu Sans Mono",ui-monospace,Menlo,Consolas,monospace;dominant-baseline:central}}
.cell,.badge{{text-anchor:middle;pointer-events:none}} .cell{{fill:{INK}}} .badge{{fill:#fff}}
.label{{fill:var(--ink)}} .bold{{font-weight:bold}} .right{{text-anchor:end}}
.line{{stroke:var(--ink);fill:none}} .line.ink-quiet{{opacity:.5}}
pre{{font:14px/1.6 "DejaVu Sans Mono",ui-monospace,Menlo,Consolas,monospace;white-space:pre-wrap;
  overflow-wrap:anywhere;margin:.5rem 0}}
pre span{{color:{INK};border-radius:2px;padding:.15em 0;box-shadow:inset -1px 0 var(--page)}}
pre i{{background:radial-gradient(circle,currentColor .09em,transparent .1em) center/1ch 1em no-repeat;
  opacity:.5}}
pre b,pre u{{font-weight:normal;text-decoration:none;opacity:.5}}
pre b::before{{content:"\\21b5"}} pre u::before{{content:"\\21e5"}}
pre em::before{{content:"\\2026";opacity:.5}}
.legend span{{display:inline-block;margin-right:1.2em}}
.legend svg{{display:inline-block;vertical-align:-2px;margin-right:.4em}}
table{{border-collapse:collapse;font-size:13px}} td,th{{padding:.2em .6em;text-align:left;vertical-align:top;
  border-bottom:1px solid #8885}} td{{font-family:ui-monospace,Menlo,Consolas,monospace}}
:root{{--page:{PAPER}}}
@media (prefers-color-scheme:dark){{
  :root{{--page:{DARK_PAPER}}} body{{background:{DARK_PAPER};color:{DARK_INK}}}
}}
"""


def page(trace: Trace, timeline: Timeline, rounds: slice) -> str:
    """The whole page.

    Args:
      trace: the run.
      timeline: when what happened.
      rounds: which rounds of every row the timelines show; texts are whole.
    """
    title = escape(heading(trace))
    idle = f"idle: target {timeline.idle('target'):.0%}"
    idle += f", draft {timeline.idle('draft'):.0%}" if trace.branches else ""
    rows = "\n".join(
        section
        for number, row in enumerate(trace.rows)
        for section in _row(trace, row, number, timeline, rounds)
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{_STYLE}{svg.style()}</style>
{svg.hatches()}
<h1>{title}</h1>
<p>rule {escape(trace.rule)} \u00b7 {escape(timeline.caption)} \u00b7 {idle}</p>
<p class="legend">{_legend(trace)}</p>
<p>{escape(" ".join(reading(trace)))}</p>
{rows}
</html>
"""


def _legend(trace: Trace) -> str:
    entries = []
    for kind, meaning in legend(trace.overlapped, trace.branches, guesses(trace)):
        hatch = (
            f'<rect width="22" height="13" fill="url(#hatch-{kind})"/>' if kind in ("refused", "idle") else ""
        )
        swatch = (
            f'<svg width="22" height="13"><rect class="fill-{kind}" width="22" height="13"/>{hatch}</svg>'
        )
        entries.append(f"<span>{swatch}{escape(meaning)}</span>")
    return "".join(entries)


def guesses(trace: Trace) -> bool:
    """Whether anything was drafted, by a model or without one."""
    return any(each.drafted for row in trace.rows for each in row.rounds)


def _row(trace: Trace, row: Row, number: int, timeline: Timeline, rounds: slice) -> Iterator[str]:
    yield f"<h2>row {number}</h2><p>{escape(figures(trace, row))}</p>"
    yield f"<pre>{_text(trace, row)}</pre>"
    drawing = strips.draw(trace, row, timeline, rounds, _WIDTH - 32)
    shown = len(row.rounds[rounds])
    if shown < len(row.rounds):
        yield f"<p>{shown} of {len(row.rounds)} rounds:</p>"
    yield f'<div class="wide">{svg.render(drawing, f"timeline of row {number}")}</div>'
    yield f"<details><summary>all rounds as a table</summary>{_table(trace, row)}</details>"


def _text(trace: Trace, row: Row) -> str:
    """The prompt and every token on the colour of its origin; what it says on hover is its round."""
    parts = [f'<span class="fill-prompt on-prompt" title="prompt">{_marked(row.prompt_text)}</span>']
    texts = iter(row.texts)
    for each in row.rounds:
        about = round_title(trace, each)
        for token, origin in zip(each.emitted, each.origins, strict=True):
            title = escape(f"token {token} from: {origin}\n{about}")
            shown = _marked(next(texts)) or "<em></em>"
            parts.append(f'<span class="fill-{ORIGIN_KINDS[origin]}" title="{title}">{shown}</span>')
    return "".join(parts)


def _marked(text: str) -> str:
    """Text with marks for spaces, tabs and ends of lines that are seen but not copied."""
    marks = {" ": "<i> </i>", "\n": "<b></b>\n", "\t": "<u></u>\t"}
    return "".join(marks.get(character) or escape(character) for character in text)


def _table(trace: Trace, row: Row) -> str:
    names = ("round", "outcome", "trunk", "became text", "origins", "refused", "branches")
    head = "".join(f"<th>{name}</th>" for name in names)
    return f"<table><tr>{head}</tr>{''.join(_table_row(trace, each) for each in row.rounds)}</table>"


def _table_row(trace: Trace, each: RowRound) -> str:
    branches = "<br>".join(escape(branch_title(trace, i, one)) for i, one in enumerate(each.branches))
    cells = (
        str(each.round + 1),
        each.outcome,
        tokens_shown(trace, each.trunk),
        tokens_shown(trace, each.emitted),
        ", ".join(each.origins),
        str(each.refused),
    )
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}<td>{branches}</td></tr>"
