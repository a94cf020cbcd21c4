"""tools/generate.py: what it prints and writes, how it fails, and Ctrl-C."""

import dataclasses
import json
import re
import signal

import generate
import pytest
from command_line import continuations, pairs
from command_line.output import Output
from command_line.prompt_files import read_prompts
from command_line.tables import add_counts, make_console, statistics_table

pytestmark = pytest.mark.usefixtures("quick_compile")
PLAIN = ("--method", "Autoregressive")


@pytest.fixture
def call(tiny_pair, tmp_path, capsys, monkeypatch):
    """Runs the tool with the tiny pair: exit code, stdout, stderr, JSON lines."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, pair=True):
        path = tmp_path / "out.jsonl"
        path.unlink(missing_ok=True)
        models = ["--target", f"{tiny_pair}/target", "--draft", f"{tiny_pair}/draft"] if pair else []
        code = generate.main([*models, "--json", str(path), "--max-new-tokens", "8", *arguments])
        printed = capsys.readouterr()
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return code, printed.out, printed.err, [json.loads(line) for line in lines]

    return run


def test_the_draft_changes_nothing_but_the_statistics(call):
    code, plain, _, (alone,) = call(*PLAIN, "def f(x):")
    assert code == 0 and plain == alone["text"] + "\n"
    code, text, table, (line,) = call("def f(x):", "--draft-length", "2")
    assert (code, text, line["tokens"]) == (0, plain, alone["tokens"])
    assert line["method"] == {"name": "SpS", "draft_length": 2} and line["statistics"]["drafted"] > 0
    assert "tokens a round" in table and "drafted" in table


def test_settings_of_any_method(call):
    _, plain, _, _ = call(*PLAIN, "def f(x):")
    flags = ("--draft-length", "2", "--branches", "3", "--hedge", "point", "--epsilon", "0.1")
    code, text, table, (line,) = call(
        "--method", "SpecBranch", *flags, "--method-set", "head_start=1", "def f(x):"
    )
    assert (code, text) == (0, plain)
    assert line["method"] == {
        "name": "SpecBranch",
        "draft_length": 2,
        "branches": 3,
        "hedge": "point",
        "epsilon": 0.1,
        "head_start": 1,
        "features": 0,
        "trust": 0.0,
    }
    for shown in ("SpecBranch(2)", "hits of a hedge", "misses", "target forwards by tokens", "trimmed"):
        assert shown in table


def test_draft_length_auto_is_measured_and_recorded(call, monkeypatch):
    wanted = []

    def resolve(method, *models, rows):
        wanted.append((method.draft_length, rows))
        return dataclasses.replace(method, draft_length=2)

    monkeypatch.setattr(continuations.sbjax, "resolve_draft_length", resolve)
    code, _, table, (line,) = call("--draft-length", "auto", "--batch", "3", "def f(x):")
    assert code == 0 and wanted == [("auto", 3)] and "SpS(2)" in table
    assert line["method"] == {"name": "SpS", "draft_length": 2}


def test_a_text_depends_on_its_place_in_the_list_but_not_on_the_batch(call):
    arguments = (*PLAIN, "--temperature", "1", "--seed", "3")
    _, out, _, together = call(*arguments, "import os", "def f(x):", "--batch", "2", "--log-probs")
    _, _, _, single = call(*arguments, "import os", "def f(x):")
    assert [line["tokens"] for line in together] == [line["tokens"] for line in single]
    assert [(line["prompt"], line["row"]) for line in single] == [("import os", 0), ("def f(x):", 1)]
    assert all(len(line["log_probs"]) == len(line["tokens"]) for line in together)
    assert "--- prompt 1: 8 tokens, length" in out and "[log-probability -" in out
    _, _, _, first = call(*arguments, "def f(x):")
    assert first[0]["tokens"] != single[1]["tokens"], "rows 0 and 1 have noise of their own"


def test_stream_prints_the_same_text_as_it_comes(call):
    _, whole, _, _ = call(*PLAIN, "def f(x):")
    _, streamed, _, _ = call(*PLAIN, "def f(x):", "--stream")
    assert streamed == whole


def test_streams_of_several_rows_are_whole_labelled_lines(capsys):
    with Output(None, streaming=True, labelled=True) as output:
        for row, text in ((0, "a"), (1, "x\ny"), (0, "b\nc"), (1, "\n")):
            output.show(row, text, f"prompt {row}")
        output.end_lines({0: "prompt 0", 1: "prompt 1"})
    assert capsys.readouterr().out.splitlines() == [
        "[prompt 1] x",
        "[prompt 0] ab",
        "[prompt 1] y",
        "[prompt 0] c",
    ]


def test_json_on_stdout_replaces_the_text(call):
    code, out, _, lines = call(*PLAIN, "def f(x):", "--json", "-", "--quiet")
    assert code == 0 and lines == [] and json.loads(out)["finish_reason"] == "length"


def test_ctrl_c_prints_and_writes_what_is_there(call, monkeypatch):
    pressed = []

    def press_once(*_):
        if not pressed:
            pressed.append(1)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Output, "show", press_once)
    code, _, err, (line,) = call(*PLAIN, "def f(x):", "def g(x):", "--stream", "--max-new-tokens", "40")
    assert code == 130 and line["finish_reason"] == "interrupted"
    assert 0 < len(line["tokens"]) < 40
    assert "generate: interrupted" in err and "tokens a second" in err


def test_results_before_ctrl_c_are_on_disk(call, monkeypatch):
    real, calls = continuations.sbjax.generate, []

    def second_call_is_interrupted(*arguments, **keywords):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **keywords)

    monkeypatch.setattr(continuations.sbjax, "generate", second_call_is_interrupted)
    code, _, _, lines = call(*PLAIN, "one", "two", "three")
    assert code == 130 and [line["prompt"] for line in lines] == ["one"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "Nonsense", "x"), "there is no method 'Nonsense'; there are PEARL, AdaEDL, Auto"),
        ((*PLAIN, "--draft-length", "3", "x"), "Autoregressive has no setting draft_length"),
        (("--method", "PEARL", "--branches", "2", "x"), "PEARL has no setting branches; it has draft_length"),
        (("--method", "SpS", "--method-set", "gama=1", "x"), "SpS has no setting gama; it has draft_length"),
        (("--epsilon", "0.1", "x"), "SpS has no setting epsilon; it has draft_length"),
        (
            ("--method", "SpecBranch", "--hedge", "all", "x"),
            "hedge must be one of point, outcomes, got 'all'",
        ),
        (("--method", "SpecBranch", "--epsilon", "2", "x"), "epsilon must be in [0, 1], got 2"),
        (("--draft-length", "2", "--method-set", "draft_length=3", "x"), "draft_length is set twice"),
        (("--method", "AdaEDL", "--method-set", "gamma=much", "x"), "gamma must be a number, got 'much'"),
        (("--config", "missing.toml", "x"), "missing.toml"),
        (("--target", "nowhere", "x"), "nowhere: there is no such folder"),
        ((*PLAIN, ""), "prompt 0 is empty"),
        ((*PLAIN, "fine", "x y z " * 40), "prompt 1 has"),
        ((*PLAIN, "x", "--temperature", "nan"), "temperature must be"),
        ((*PLAIN, "x", "--top-p", "1.5"), "top_p must be"),
        ((*PLAIN, "x", "--set", "tempratur=1"), "did you mean temperature?"),
        ((*PLAIN, "x", "--set", "repetition_penalty=1.2"), "repetition_penalty=1.2 is not implemented"),
        ((*PLAIN, "x", "--chat"), "chat template"),
        ((*PLAIN, "--prompt-file", "missing.txt"), "missing.txt"),
    ],
)
def test_what_is_wrong_is_one_line_on_stderr(call, arguments, message):
    code, out, err, lines = call(*arguments, "--quiet")
    assert (code, out, lines) == (1, "", [])
    assert err.startswith("generate: ") and err.count("\n") == 1 and message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "there is no prompt"),
        (("x", "--max-new-tokens", "0"), "must be at least 1"),
        (("x", "--draft-length", "0"), "must be at least 1"),
        (("x", "--draft-length", "car"), "invalid draft_length value: 'car'"),
        (("x", "--method-set", "gamma"), "NAME=VALUE is expected"),
        (("x", "--stream", "--json", "-"), "would both write to stdout"),
        (("x", "--system", "y"), "--system only goes with --chat"),
        (("x", "--set", "temperature"), "NAME=VALUE is expected"),
    ],
)
def test_wrong_usage_ends_with_code_2(call, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        call(*arguments)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_models_are_named_by_flags_or_by_a_configuration(call, tiny_pair, tmp_path):
    assert "no model is named" in call("x", pair=False)[2]
    code, _, err, _ = call("x", "--target", f"{tiny_pair}/target", "--method", "SpS", pair=False)
    assert code == 1 and "SpS needs a draft model: pass --draft" in err
    (tmp_path / "pair.toml").write_text(
        f'name = "tiny"\ndtype = "float32"\n[target]\nfolder = "{tiny_pair}/target"\n[draft]\n'
        f'folder = "{tiny_pair}/draft"\n[method]\nname = "SpS"\ndraft_length = 2\n'
        "[sampling]\ntemperature = 1.0\n"
    )
    code, _, _, (line,) = call("x", "--config", "pair.toml", pair=False)
    assert (code, line["method"]["draft_length"], line["settings"]) == (0, 2, {"temperature": 1.0})


def test_hub_ids_are_looked_up_among_the_converted(tmp_path):
    with pytest.raises(ValueError, match=r"run: python tools/convert_hf\.py Owner/Name \S*/Name"):
        pairs.find_folder("Owner/Name", tmp_path)
    (tmp_path / "Name").mkdir()
    assert pairs.find_folder("Owner/Name", tmp_path) == tmp_path / "Name"


def test_prompt_files(tmp_path):
    (tmp_path / "one.py").write_text("def f():\n")
    assert read_prompts(tmp_path / "one.py") == ["def f():\n"]
    many = tmp_path / "many.jsonl"
    many.write_text(
        '{"question": "a\u2028b"}\n\n{"turns": ["first", "second"]}\n{"prompt": [1, 2], "text": "t"}\n'
    )
    assert read_prompts(many) == ["a\u2028b", "first", [1, 2]]
    with pytest.raises(ValueError, match=r"many\.jsonl, line 1: there is no field text, only question"):
        read_prompts(many, "text")
    many.write_text("{}\n{\n")
    with pytest.raises(ValueError, match=r"line 1: there is no field prompt or question"):
        read_prompts(many)


SERIAL = {
    "tokens": 6,
    "rounds": 2,
    "mean_accepted_length": 3.0,
    "drafted": 8,
    "accepted": 4,
    "acceptance": 0.8,
    "tested_by_position": [2, 3],
    "accepted_by_position": [2, 2],
    "acceptance_by_position": [1.0, 2 / 3],
    "rolled_back": 4,
    "rollback": 0.5,
    "target_forwards": 2,
    "target_forwards_by_width": {1: 0, 3: 2},
    "draft_forwards": 8,
}
OVERLAPPED = SERIAL | {
    "trimmed": 2,
    "trim": 0.25,
    "hits_main": 1,
    "hits_hedge": 2,
    "misses": 1,
    "hit_rate": 0.75,
    "branches": 12,
    "hedge_drafted": 20,
    "kept": 3,
    "dropped": 1,
    "verdicts": [0, 2, 1],
}


def test_counts_of_several_runs_add_up():
    other = SERIAL | {"tokens": 2, "rolled_back": 8, "target_forwards_by_width": {1: 5, 3: 1}}
    other |= {"tested_by_position": [4, 1], "accepted_by_position": [1, 0], "accepted": 1}
    total = add_counts([SERIAL, other])
    assert (total["tokens"], total["mean_accepted_length"], total["rollback"]) == (8, 2.0, 0.75)
    assert total["target_forwards_by_width"] == {1: 5, 3: 3}
    assert (total["tested_by_position"], total["accepted_by_position"]) == ([6, 4], [3, 2])
    assert (total["acceptance"], total["acceptance_by_position"]) == (0.5, [0.5, 0.5])
    assert not {"hit_rate", "trim", "branches"} & set(total)
    assert add_counts([OVERLAPPED]) == OVERLAPPED


def test_branches_of_several_runs_add_up_also_where_one_had_none():
    total = add_counts([OVERLAPPED, SERIAL, OVERLAPPED | {"misses": 5, "trimmed": 7}])
    assert (total["hits_main"], total["hits_hedge"], total["misses"]) == (2, 4, 6)
    assert (total["hit_rate"], total["trim"], total["verdicts"]) == (0.5, 9 / 24, [0, 4, 2])
    assert set(total) == set(OVERLAPPED)


def test_a_table_shows_what_there_is(capsys):
    make_console().print(statistics_table("t", {"serial": SERIAL, "overlapped": OVERLAPPED}))
    out = [
        re.split(r"\s*\u2502\s*", line.strip("\u2502 \n")) for line in capsys.readouterr().out.splitlines()
    ]
    cells = {line[0]: line[1:] for line in out if len(line) == 3}
    assert cells["target forwards by tokens"] == ["1: 0, 3: 2", "1: 0, 3: 2"]
    assert cells["hits of a hedge"] == ["", "2"]
    assert cells["hits of rounds with branches"] == ["", "75.0%"]
    assert cells["H-RAD: none / undecided / all"] == ["", "0 / 2 / 1"]
    assert cells["trimmed of drafted"] == ["", "25.0%"] and cells["misses"] == ["", "1"]
