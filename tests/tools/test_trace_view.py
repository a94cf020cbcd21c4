"""tools/trace_view.py: what its page and picture hold, the times it draws, and how it fails."""

import html
import re
import signal
import sys

import pytest
import trace_view
from trace_drawing import cells, html_page, picture, scene, strips, timeline, words

import sbjax
from sbjax.trace import DRAFT, HEDGE, HIT_HEDGE, MAIN_HEAD, MISS, TARGET, Branch, Round, Row, RowRound, Trace

TEXTS = ["<b>", "&amp;", ' "x"', "\n", "\t", " $y$", "\u65e5", "\x07", "", "</pre>"]
ALL = slice(0, None)


def one_round(index, emitted, origins, **others) -> RowRound:
    settings = {"trunk": [], "head": None, "refused": 0, "outcome": "", "branches": [], "drafted": 0}
    settings |= {"rolled_back": 0, "trimmed": 0, "kept": 0, "dropped": 0, "verdict": None, **others}
    return RowRound(round=index, emitted=emitted, origins=origins, **settings)


def make(overlapped: bool) -> Trace:
    """Two rounds: two accepted of three, a miss, then a hit on a hedge; token i has text i of TEXTS."""
    branches = [
        [Branch(3, 9, [4, 4, 4], 1, False)],
        [Branch(0, 4, [5, 6], 0, False), Branch(0, 3, [7, 8], 0, True)],
    ]
    first, second = branches if overlapped else ([], [])
    outcomes = (MISS, HIT_HEDGE) if overlapped else ("", "")
    shared = {"trunk": [0, 1, 4], "drafted": 3, "rolled_back": 4, "outcome": outcomes[0], "branches": first}
    ends = {"head": 9, "refused": 2} if overlapped else {"head": None, "refused": 1}
    rounds = [
        one_round(0, [0, 1, 2], [DRAFT, DRAFT, TARGET], **shared, **ends),
        one_round(1, [3], [HEDGE if overlapped else TARGET], outcome=outcomes[1], branches=second),
    ]
    row = Row([0], "a <prompt>\n", TEXTS[:4], "length", rounds)
    batch = [Round(4, 3, 0.020, 0.005), Round(1, 3, 0.010, 0.004)]
    pieces = dict(enumerate(TEXTS))
    return Trace(
        "Made<up>", {"draft_length": 3}, "match", overlapped, 2 if overlapped else 1, batch, [row], pieces
    )


def shown_text(page: str) -> str:
    """What a browser shows as the text of the first row, and what is copied from it."""
    return html.unescape(re.sub(r"<[^>]*>", "", re.search(r"<pre>(.*?)</pre>", page, re.S)[1]))


@pytest.mark.parametrize("overlapped", [False, True])
def test_the_page_holds_every_token_and_nothing_from_outside(overlapped):
    trace = make(overlapped)
    page = html_page.page(trace, timeline.modelled(trace, 5.0), ALL)
    assert shown_text(page) == "a <prompt>\n" + "".join(TEXTS[:4])
    assert not re.search(r"<script|<link|<img|src=|href=|url\((?!#)|@import|https?:", page)
    assert "<b>&amp;" not in page.replace("<b></b>", "") and "Made&lt;up&gt;(draft_length=3)" in page
    for kind in ("draft", "target", "hedge") if overlapped else ("draft", "target"):
        assert f'<span class="fill-{kind}" title=' in page
    assert ("hit on a hedge" in page) == overlapped
    assert "prefers-color-scheme:dark" in page and "MODELLED time" in page


def test_lanes_show_what_became_of_every_token():
    first, second = make(True).rows[0].rounds
    assert [cell.kind for cell in cells.checked(first)] == ["draft", "draft", "target", "refused", "refused"]
    assert [cell.token for cell in cells.checked(first)] == [0, 1, 2, 4, 9]
    assert {cell.kind for cell in cells.branch(first, 0, first.branches[0])} == {"refused"}
    assert [cell.kind for cell in cells.branch(second, 1, second.branches[1])] == ["hedge", "draft", "draft"]
    assert {cell.kind for cell in cells.branch(second, 0, second.branches[0])} == {"lost"}
    serial = make(False).rows[0].rounds[0]
    assert [cell.kind for cell in cells.chain(serial)] == ["draft", "draft", "refused"]
    ended = one_round(0, [0], [DRAFT], trunk=[0, 1], drafted=2)
    assert [cell.kind for cell in cells.checked(ended)] == ["draft", "lost"]
    hit = one_round(0, [0, 1], [DRAFT, MAIN_HEAD], trunk=[0], head=1)
    assert [cell.kind for cell in cells.checked(hit)] == ["draft", "main-head"]


def test_modelled_times_by_hand():
    over = timeline.modelled(make(True), 5.0)
    assert [(each.start, each.end) for each in over.rounds] == [(0, 5), (5, 10)]
    assert (
        over.rounds[1].draft == (5, 8)
        and over.idle("draft") == pytest.approx(0.4)
        and over.idle("target") == 0
    )
    serial = timeline.modelled(make(False), lambda width: 1.0 + width, lambda branches: 2.0 * branches)
    assert [(each.draft, each.target) for each in serial.rounds] == [((0, 6), (6, 11)), ((11, 17), (17, 19))]


def test_measured_times_take_turns():
    line = timeline.measured(make(True))
    assert [each.end for each in line.rounds] == pytest.approx([20, 30]) and line.unit == "ms"
    assert line.rounds[1].draft == pytest.approx((20, 24)) and line.rounds[1].target == pytest.approx(
        (24, 30)
    )


@pytest.mark.parametrize("overlapped", [False, True])
def test_nothing_overlaps_or_leaves_the_picture(overlapped):
    trace = make(overlapped)
    drawn = strips.draw(trace, trace.rows[0], timeline.measured(trace), ALL, 600)
    boxes = [item for item in drawn.items if isinstance(item, scene.Box)]
    for i, a in enumerate(boxes):
        assert a.x >= 0 and a.x + a.width <= 601 and a.y + a.height <= drawn.height
        assert scene.columns(a.text) * scene.CHARACTER * a.size <= a.width
        for b in boxes[:i]:
            apart = a.x + a.width <= b.x + 0.1 or b.x + b.width <= a.x + 0.1
            assert apart or a.y + a.height <= b.y + 0.1 or b.y + b.height <= a.y + 0.1


def test_tokens_are_made_visible_and_cut_to_fit():
    assert (
        words.visible(" a\n\t\x07\u202e") == "\u00b7a\u21b5\u21e5\u25af\u25af"
        and words.visible("") == "\u2205"
    )
    assert scene.columns("a\u65e5e\u0301") == 4
    assert scene.fitted("abcdef", 4.5 * scene.CHARACTER * 10, 10) == "abc\u2026"
    assert scene.fitted("\u65e5\u65e5", 3 * scene.CHARACTER * 10, 10) == "\u65e5\u2026"
    assert scene.fitted("ab", 3, 10) == ""


def test_a_recorded_run_is_drawn_again(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    make(True).save(tmp_path / "run.json")
    code = trace_view.main(
        [f"{tmp_path}/run.json", "--c", "5", "--rounds", "1-1", "--out", f"{tmp_path}/again"]
    )
    assert code == 0 and capsys.readouterr().out.split() == [
        f"{tmp_path}/again.html",
        f"{tmp_path}/again.png",
    ]
    assert (tmp_path / "again.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "1 of 2 rounds" in (tmp_path / "again.html").read_text(encoding="utf-8")


def test_without_matplotlib_the_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    make(False).save(tmp_path / "run.json")
    arguments = [f"{tmp_path}/run.json", "--out", f"{tmp_path}/again"]
    assert trace_view.main(arguments) == 1 and "pip install 'sbjax[plot]'" in capsys.readouterr().err
    assert trace_view.main([*arguments, "--no-png"]) == 0 and (tmp_path / "again.html").is_file()


def test_a_picture_has_heading_text_and_lanes():
    trace = make(True)
    drawn = picture.draw(trace, trace.rows[0], timeline.modelled(trace, 5.0), slice(0, 1))
    said = " ".join(item.text for item in drawn.items if not isinstance(item, scene.Line))
    assert "only 1 of 2 rounds are shown" in said and "hedge 1" in said and "MODELLED" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to draw"),
        (("--c", "0", "--prompt", "x"), "must be above 0"),
        (("--rounds", "3-2", "--prompt", "x"), "1 <= A <= B"),
        (("run.json", "--prompt", "x"), "either it or those"),
    ],
)
def test_wrong_usage_ends_with_code_2(capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        trace_view.main(list(arguments))
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_what_is_wrong_is_one_line_on_stderr(tmp_path, capsys):
    (tmp_path / "run.json").write_text("{}")
    assert trace_view.main([f"{tmp_path}/run.json", "--no-png"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("trace_view: ") and error.count("\n") == 1 and "is no trace" in error


def test_a_run_is_recorded_and_ctrl_c_keeps_what_is_there(tiny_pair, tmp_path, monkeypatch, quick_compile):
    models = ["--target", f"{tiny_pair}/target", "--draft", f"{tiny_pair}/draft"]
    method = ["--method", "PromptLookup", "--temperature", "0"]
    out = ["--prompt", "def f(x):", "--no-png", "--max-new-tokens", "9", "--out", f"{tmp_path}/run"]
    assert trace_view.main([*models, *method, *out]) == 0
    (row,) = Trace.load(tmp_path / "run.json").rows
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert len(row.tokens) == 9 and shown_text(page) == row.prompt_text + "".join(row.texts)
    step = sbjax.Recorder.step

    def step_and_press(*arguments):
        signal.raise_signal(signal.SIGINT)
        return step(*arguments)

    monkeypatch.setattr(sbjax.Recorder, "step", step_and_press)
    assert trace_view.main([*models, *method, *out]) == 130
    (short,) = Trace.load(tmp_path / "run.json").rows
    assert (
        short.finish_reason == "interrupted" and short.tokens == row.tokens[: len(short.tokens)] != row.tokens
    )
