"""Colours by kind, for light and dark pages and for pictures; tints of Okabe and Ito's palette.

The palette can be told apart with every common kind of colour blindness; what was lost is hatched as well.
"""

from typing import NamedTuple


class Fill(NamedTuple):
    """How boxes of one kind are filled.

    Attributes:
      colour: the background; the text on it is always ``INK``.
      hatch: colour of diagonal lines on it, or None.
      dark: the background on a dark page, where it differs; the text on it is then ``DARK_INK``.
    """

    colour: str
    hatch: str | None = None
    dark: str | None = None


INK, DARK_INK = "#16181d", "#d8dae0"
PAPER, DARK_PAPER = "#ffffff", "#16181d"

FILLS = {
    "prompt": Fill("#eceef2", dark="#33363f"),
    "draft": Fill("#8fcbf0"),
    "main-head": Fill("#67c9a8"),
    "hedge": Fill("#f3c04b"),
    "target": Fill("#dba8c8"),
    "refused": Fill("#f0a17a", hatch="#c4571b"),
    "lost": Fill("#dcdee3", dark="#454953"),
    "idle": Fill("#fafafb", hatch="#b9bdc7", dark="#1d2027"),
    "badge": Fill("#4a4e59"),
}
"""Of boxes."""

INKS = {
    "plain": (INK, DARK_INK),
    "quiet": ("#5d6370", "#9aa0ad"),
    "light": ("#ffffff", "#ffffff"),
    "hit": ("#00694d", "#67c9a8"),
    "hedge": ("#855600", "#f3c04b"),
    "miss": ("#a33b00", "#f0a17a"),
}
"""Of text and lines, on light and on dark."""

ORIGIN_KINDS = {"draft": "draft", "main head": "main-head", "hedge": "hedge", "target": "target"}
"""From the origins of tokens to kinds."""


def legend(overlapped: bool, branches: int, drafts: bool) -> list[tuple[str, str]]:
    """Kinds that a drawing can hold, with what they mean.

    Args:
      overlapped: whether draft and target work at the same time.
      branches: ``K``.
      drafts: whether the method guesses at all.
    """
    target = ("target", "the target's own token")
    if not drafts:
        return [target]
    kinds = [("draft", "drafted" if overlapped else "drafted and accepted")]
    kinds += [("main-head", "main head, hit")] if overlapped else []
    kinds += [("hedge", "a hedge's head, hit")] if overlapped and branches > 1 else []
    kinds += [target, ("refused", "refused or rolled back")]
    kinds += [("lost", "branch not taken")] if overlapped and branches > 1 else []
    return [*kinds, ("idle", "idle")]
