"""A scene as inline SVG. Colours are classes of the page's style sheet, so that they can follow its theme."""

from html import escape

from trace_drawing.palette import FILLS, INKS
from trace_drawing.scene import Box, Label, Line, Scene


def render(scene: Scene, name: str) -> str:
    """The scene as an SVG element.

    Args:
      scene: the drawing.
      name: what it shows, for screen readers.
    """
    items = "\n".join(map(_item, scene.items))
    size = f'width="{scene.width:g}" height="{scene.height:g}" viewBox="0 0 {scene.width:g} {scene.height:g}"'
    return f'<svg role="img" aria-label="{escape(name)}" {size}>\n{items}\n</svg>'


def hatches() -> str:
    """An SVG element with the patterns of hatched fills, once a page."""
    patterns = "".join(
        f'<pattern id="hatch-{kind}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><path class="hatch-{kind}" d="M0 0V6" stroke-width="1.5"/></pattern>'
        for kind, fill in FILLS.items()
        if fill.hatch
    )
    hidden = 'width="0" height="0" aria-hidden="true" style="position:absolute"'
    return f"<svg {hidden}><defs>{patterns}</defs></svg>"


def style() -> str:
    """CSS of fills and inks, light and dark."""
    light, dark = [], []
    for kind, fill in FILLS.items():
        light.append(f".fill-{kind}{{fill:{fill.colour};background:{fill.colour}}}")
        if fill.dark:
            dark.append(
                f".fill-{kind}{{fill:{fill.dark};background:{fill.dark}}}.on-{kind}{{fill:#d8dae0;color:#d8dae0}}"
            )
        if fill.hatch:
            light.append(f".hatch-{kind}{{stroke:{fill.hatch};opacity:.4}}")
    for ink, (on_light, on_dark) in INKS.items():
        light.append(f".ink-{ink}{{--ink:{on_light}}}")
        dark.append(f".ink-{ink}{{--ink:{on_dark}}}")
    return "\n".join([*light, f"@media (prefers-color-scheme:dark){{{''.join(dark)}}}"])


def _item(item: Box | Label | Line) -> str:
    if isinstance(item, Line):
        return (
            f'<path class="line ink-{item.ink}" d="M{item.x1:.1f} {item.y1:.1f}L{item.x2:.1f} {item.y2:.1f}" '
            f'stroke-width="{item.width:g}"/>'
        )
    shown = _box(item) if isinstance(item, Box) else _label(item)
    return f"<g><title>{escape(item.title)}</title>{shown}</g>" if item.title else shown


def _box(box: Box) -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="2"'
    shown = f'<rect class="fill-{box.kind}" {place}/>'
    if FILLS[box.kind].hatch:
        shown += f'<rect fill="url(#hatch-{box.kind})" {place}/>'
    if box.text:
        x, y = box.x + box.width / 2, box.y + box.height / 2
        words = "badge" if box.kind == "badge" else f"cell on-{box.kind}"
        place = f'x="{x:.1f}" y="{y:.1f}" font-size="{box.size:g}"'
        shown += f'<text class="{words}" {place}>{escape(box.text)}</text>'
    return shown


def _label(label: Label) -> str:
    words = f"label ink-{label.ink}" + (" bold" if label.bold else "") + (" right" if label.right else "")
    return (
        f'<text class="{words}" x="{label.x:.1f}" y="{label.y:.1f}" font-size="{label.size:g}">'
        f"{escape(label.text)}</text>"
    )
