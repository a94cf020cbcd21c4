"""A recorded run against the text and the statistics of the same run, and its JSON."""

import collections
import json

import jax.numpy as jnp
import numpy as np
import pytest

import sbjax
from sbjax.testing.models import ScriptModel, TableModel
from sbjax.trace import DRAFT, HEDGE, HIT, HIT_HEDGE, MAIN_HEAD, MISS, TARGET, Trace

pytestmark = pytest.mark.usefixtures("quick_compile")
TABLE = TableModel(9)
METHODS = {
    "SpecBranch": (sbjax.SpecBranch(draft_length=2, branches=3, epsilon=0.3), "token"),
    "Lookahead": (sbjax.Lookahead(window=2, ngram=3, guesses=2, pool=8), "match"),
}


def table_pair(tokenizer):
    """A target, and a draft that often says the same."""
    params = TABLE.init(0, 2.0)
    near = {"table": params["table"] + TABLE.init(1, 1.0)["table"]}
    return sbjax.Model(TABLE, params, tokenizer), sbjax.Model(TABLE, near, tokenizer)


@pytest.fixture(scope="module", params=METHODS)
def recorded(request, letters, quick_compile):
    """A result, its trace, and the method; two rows, one of which a stop token may end."""
    method, rule = METHODS[request.param]
    target, draft = table_pair(letters)
    recorder = sbjax.Recorder()
    settings = {"temperature": 1.0, "max_new_tokens": 20, "seed": 5, "eos_token_id": 1}
    result = sbjax.generate(
        target, ["ab c", "cab"], draft=draft, method=method, rule=rule, recorder=recorder, **settings
    )
    trace = recorder.trace(letters, [each.finish_reason for each in result.generations])
    return result, trace, method


def test_origins_add_up_to_the_text(recorded, letters):
    result, trace, _ = recorded
    for row, generation in zip(trace.rows, result.generations, strict=True):
        assert row.tokens == generation.tokens and len(row.origins) == len(row.tokens) == len(row.texts)
        assert "".join(row.texts) == letters.decode(row.tokens, skip_special_tokens=False)
        assert row.finish_reason == generation.finish_reason
        for each in row.rounds:
            kinds = [DRAFT, MAIN_HEAD, HEDGE, TARGET]
            assert [kinds.index(one) for one in each.origins] == sorted(map(kinds.index, each.origins))
            assert each.trunk[: each.origins.count(DRAFT)] == each.emitted[: each.origins.count(DRAFT)]


def agree(row, counted):
    for name in ("accepted", "drafted", "rolled_back"):
        assert sum(getattr(each, name) for each in row.rounds) == counted[name], name


def test_counts_agree_with_the_statistics_of_every_row(recorded):
    result, trace, method = recorded
    for row, generation in zip(trace.rows, result.generations, strict=True):
        counted = generation.statistics
        assert len(row.rounds) == counted["rounds"]
        agree(row, counted)
        if not method.overlapped:
            assert sum(each.refused for each in row.rounds) == counted["rolled_back"]
            continue
        for name in ("trimmed", "kept", "dropped"):
            assert sum(getattr(each, name) for each in row.rounds) == counted[name], name
        outcomes = collections.Counter(each.outcome for each in row.rounds)
        names = {HIT: "hits_main", HIT_HEDGE: "hits_hedge", MISS: "misses"}
        assert all(outcomes[outcome] == counted[name] for outcome, name in names.items())
        assert sum(len(each.branches) for each in row.rounds) == counted["branches"]


def test_forwards_are_those_of_the_batch(recorded):
    result, trace, _ = recorded
    widths = collections.Counter(each.target_width for each in trace.rounds)
    assert widths == {w: n for w, n in result.statistics["target_forwards_by_width"].items() if n}
    assert sum(each.draft_forwards for each in trace.rounds) == result.statistics["draft_forwards"]
    assert all(each.seconds > 0 for each in trace.rounds)


def test_refused_tokens_and_branches_tell_one_story(recorded):
    _, trace, method = recorded
    if not method.overlapped:
        assert not any(each.branches for row in trace.rows for each in row.rounds)
        return
    assert all(len(each.refused_tokens) == each.refused for row in trace.rows for each in row.rounds)
    for row in trace.rows:
        for each, following in zip(row.rounds, row.rounds[1:], strict=False):
            survivors = [branch for branch in each.branches if branch.survived]
            assert len(survivors) == (each.outcome in (HIT, HIT_HEDGE))
            for branch in survivors:
                assert (branch.fork, branch.head) == (len(each.emitted) - 1, each.emitted[-1])
                checked = [*following.trunk, following.head]
                assert checked == branch.behind[: len(checked)]
            assert survivors or not following.trunk


def test_json_holds_everything(recorded, tmp_path):
    _, trace, _ = recorded
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json") == trace
    assert {token for row in trace.rows for each in row.rounds for token in each.ids} == set(trace.pieces)


def scripted(method, wrong: set[int], tokens: int):
    """A run without a tokenizer in which the draft is wrong at some positions of the text."""
    model = ScriptModel(7)
    script = np.arange(model.max_length, dtype=np.int32) % 5 + 1
    guess = np.array([0 if place in wrong else token for place, token in enumerate(script)], np.int32)
    sides = [sbjax.Model(model, {"script": jnp.asarray(one)}) for one in (script, guess)]
    recorder = sbjax.Recorder()
    settings = {"temperature": 0.0, "max_new_tokens": tokens}
    result = sbjax.generate(sides[0], [[1]], draft=sides[1], method=method, recorder=recorder, **settings)
    trace = recorder.trace(None, [result.generations[0].finish_reason])
    assert trace.rows[0].tokens == script[1 : 1 + tokens].tolist()
    agree(trace.rows[0], result.generations[0].statistics)
    return trace


def test_a_serial_run_by_hand():
    trace = scripted(sbjax.SpS(draft_length=3), {3}, 7)
    assert [each.origins for each in trace.rows[0].rounds] == [
        [DRAFT, DRAFT, TARGET],  # wrong at position 3
        [DRAFT, DRAFT, DRAFT, TARGET],
    ]
    assert [each.refused for each in trace.rows[0].rounds] == [1, 0]
    assert trace.rows[0].rounds[0].refused_tokens == [0] and trace.rows[0].prompt_text == "1 "


def test_an_overlapped_run_by_hand():
    trace = scripted(sbjax.PEARL(draft_length=3), {5}, 9)
    rounds = trace.rows[0].rounds
    assert [each.outcome for each in rounds[:4]] == [HIT, HIT, MISS, HIT]
    # The first round has no trunk: its head is the first guess. Position 5 is guessed in the second one.
    assert [each.origins for each in rounds[:3]] == [[MAIN_HEAD], [DRAFT, MAIN_HEAD], [DRAFT, TARGET]]
    assert [(each.refused, each.rolled_back) for each in rounds[:3]] == [(0, 0), (0, 0), (2, 5)]
    assert trace.pieces[3] == "3 "


def test_what_is_no_trace_is_refused(tmp_path):
    path = tmp_path / "trace.json"
    with pytest.raises(FileNotFoundError, match=r"trace\.json"):
        Trace.load(path)
    for content, message in (
        ({}, "is no trace"),
        ({"sbjax_trace": 99}, "format 99"),
        ({"sbjax_trace": 1, "rounds": [{}]}, "damaged"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(ValueError, match=message):
            Trace.load(path)


def test_a_recorder_that_saw_nothing_says_so():
    with pytest.raises(ValueError, match="nothing was recorded"):
        sbjax.Recorder().trace(None, [])
