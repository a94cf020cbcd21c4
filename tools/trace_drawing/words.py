"""Tokens and rounds in words."""

import unicodedata

from sbjax.trace import HIT, HIT_HEDGE, MISS, Branch, Row, RowRound, Trace

_VISIBLE = {" ": "\u00b7", "\n": "\u21b5", "\t": "\u21e5", "\r": "\u240d"}
_OUTCOMES = {
    HIT: "hit on the main branch",
    HIT_HEDGE: "hit on a hedge",
    MISS: "miss: no branch was the outcome",
}


def visible(text: str) -> str:
    """A text on one line, with marks for spaces, tabs, ends of lines and other characters without a glyph."""
    return "".join(map(_visible, text)) or "\u2205"


def _visible(character: str) -> str:
    if character in _VISIBLE:
        return _VISIBLE[character]
    # Control, format, surrogate and private characters, and separators other than the space.
    return "\u25af" if unicodedata.category(character)[0] in "CZ" else character


def heading(trace: Trace) -> str:
    """Method with its settings."""
    settings = ", ".join(f"{name}={value}" for name, value in trace.settings.items())
    return f"{trace.method}({settings})"


def figures(trace: Trace, row: Row) -> str:
    """The figures of a row on one line."""
    tokens, rounds = len(row.tokens), len(row.rounds)
    ended = {"stop": "a stop token", "length": "the limit", "stop_string": "a stop string"}
    parts = [f"{tokens} tokens in {rounds} rounds", f"{tokens / max(rounds, 1):.2f} tokens a round"]
    drafted, lost = (sum(getattr(each, name) for each in row.rounds) for name in ("drafted", "rolled_back"))
    if trace.overlapped:
        counts = {outcome: sum(each.outcome == outcome for each in row.rounds) for outcome in _OUTCOMES}
        parts.append(f"hits: {counts[HIT]} main, {counts[HIT_HEDGE]} hedge; misses: {counts[MISS]}")
    if drafted:
        parts.append(f"rolled back: {lost} of {drafted} drafted")
    if trimmed := sum(each.trimmed for each in row.rounds):
        parts.append(f"trimmed: {trimmed}")
    parts.append(f"ended by {ended.get(row.finish_reason, row.finish_reason)}")
    return " \u00b7 ".join(parts)


def reading(trace: Trace) -> list[str]:
    """How a timeline is read, in sentences."""
    parts = [
        "Above a round: its number, how many tokens became text, what came of it.",
        "Target: tokens that became text, then what it refused.",
    ]
    if trace.overlapped:
        parts.append("Draft: a line a branch; in front its fork, the trunk tokens that it builds on.")
    return parts


def round_title(trace: Trace, each: RowRound) -> str:
    """All about a round, on several lines."""
    whole = trace.rounds[each.round]
    lines = [f"round {each.round + 1}" + (f": {_OUTCOMES[each.outcome]}" if each.outcome else "")]
    lines.append(f"trunk: {tokens_shown(trace, each.trunk) or 'empty'}")
    if each.head is not None:
        lines.append(f"main head: {tokens_shown(trace, [each.head])}")
    lines.append(f"{each.accepted} accepted, {each.refused} refused")
    lines.append(f"became text: {tokens_shown(trace, each.emitted) or 'nothing'}")
    lines += [branch_title(trace, index, branch) for index, branch in enumerate(each.branches)]
    lines.append(f"drafted {each.drafted}, rolled back {each.rolled_back}, trimmed {each.trimmed}")
    if trace.overlapped:
        verdict = "" if each.verdict is None else f"; H-RAD: {('nothing', 'undecided', 'all')[each.verdict]}"
        lines.append(f"next trunk: {each.kept} kept, {each.dropped} left out{verdict}")
    lines.append(f"target forward {whole.target_width} wide, {whole.draft_forwards} draft forwards")
    lines.append(f"measured {whole.seconds * 1e3:.1f} ms, the draft alone {whole.draft_seconds * 1e3:.1f} ms")
    return "\n".join(lines)


def branch_title(trace: Trace, index: int, branch: Branch) -> str:
    """A branch on one line."""
    name = "main branch" if index == 0 else f"hedge {index}"
    start = f" (head start {branch.head_start})" if branch.head_start else ""
    end = ", the outcome" if branch.survived else ""
    behind = tokens_shown(trace, branch.behind)
    head = tokens_shown(trace, [branch.head])
    return f"{name}: fork {branch.fork}, head {head}, then {behind or 'nothing'}{start}{end}"


def tokens_shown(trace: Trace, tokens: list[int]) -> str:
    """Tokens by themselves, with bars between them."""
    return " | ".join(visible(trace.pieces[token]) for token in tokens)
