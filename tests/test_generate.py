"""The front door: prompts to results, with any method, on models whose every next token is known."""

import dataclasses
import json
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import Autoregressive, GenerationDefaults, Model, SpS, Tokenizer, generate
from sbjax.testing import ScriptModel, TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
BOS, EOS, A, B, C, SPACE, HALF, OTHER_HALF, AB = range(9)
V, G = 9, 4
TARGET_TABLE = TableModel(12, max_length=128)  # padded differently, as published pairs are
DRAFT_TABLE = TableModel(10, max_length=128)
TARGET_SCRIPT, DRAFT_SCRIPT = ScriptModel(12, max_length=128), ScriptModel(10, max_length=128)
METHODS = [Autoregressive(), SpS(G)]


def table(model: TableModel, seed: int) -> dict:
    """Random logits, largest in the columns of the padding."""
    logits = np.array(model.init(seed, 2.0)["table"])
    logits[..., V:] = 60
    return {"table": jnp.asarray(logits)}


TARGET_PARAMS = table(TARGET_TABLE, 0)
DRAFT_PARAMS = {"table": TARGET_PARAMS["table"][:10, :10, :10] + 0.7 * table(DRAFT_TABLE, 1)["table"]}


@pytest.fixture(scope="module")
def pair(letters):
    return Model(TARGET_TABLE, TARGET_PARAMS, letters), Model(DRAFT_TABLE, DRAFT_PARAMS, letters)


@pytest.fixture(scope="module")
def script(letters):
    """A pair that says a given text behind a prompt of one token, and then c for ever."""

    def make(said, **options):
        params = {"script": jnp.asarray([0, *said, *[C] * (127 - len(said))], jnp.int32)}
        return [Model(model, params, letters, **options) for model in (TARGET_SCRIPT, DRAFT_SCRIPT)]

    return make


def ask(pair, prompts, method, **settings):
    """Generates with defaults that keep shapes the same."""
    target, draft = pair
    settings = {"max_new_tokens": 20, "log_probs": True, **settings}
    return generate(target, prompts, draft=draft, method=method, **settings)


def tokens(result) -> list[list[int]]:
    return [generation.tokens for generation in result.generations]


TWO = [[C], [C]]


def test_every_method_gives_one_text_inside_the_vocabulary(pair):
    settings = {"temperature": [0.0, 1.3]}
    plain, drafted = (ask(pair, [[C, A], [B]], method, **settings) for method in METHODS)
    assert tokens(plain) == tokens(drafted)
    assert all(0 <= token < V for row in tokens(plain) for token in row)
    assert plain.statistics["target_forwards"] == 20 > drafted.statistics["target_forwards"]
    assert plain.statistics["draft_forwards"] == 0 < drafted.statistics["draft_forwards"]
    for result in (plain, drafted):
        for prompt, generation in zip([[C, A], [B]], result.generations, strict=True):
            text = [0, *prompt, *generation.tokens]
            rows = TARGET_PARAMS["table"][np.array(text[:-1])[-21:-1], np.array(text[:-1])[-20:], :V]
            law = np.asarray(jax.nn.log_softmax(rows, -1))
            wanted = law[np.arange(20), generation.tokens]
            np.testing.assert_allclose(generation.log_probs, wanted, atol=1e-5)


def test_text_chat_and_ids_are_one_prompt(pair):
    chat = [{"role": "user", "content": "ca"}]
    by_text, by_ids = (ask(pair, prompts, SpS(G)) for prompts in (["ca", "cab"], [[C, A], [C, AB]]))
    assert tokens(by_text) == tokens(by_ids)
    by_chat = ask(pair, [chat, "c"], SpS(G))
    assert tokens(by_chat)[0] == tokens(ask(pair, [[C, AB], [C]], SpS(G)))[0]
    assert by_text.texts == [pair[0].tokenizer.decode(row) for row in tokens(by_text)]


def test_plain_decoding_is_the_default_without_a_draft_and_ignores_one(pair):
    target, draft = pair
    for models, method in (((target, None), None), ((target, draft), Autoregressive())):
        assert ask(models, TWO, method).statistics["drafted"] == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_stop_token_inside_a_block_ends_the_text_and_the_counting(script, method):
    result = ask(script([A, EOS, B, B, B]), TWO, method, eos_token_id=EOS)
    for generation in result.generations:
        assert (generation.tokens, generation.text, generation.finish_reason) == ([A, EOS], "a", "stop")
        assert generation.statistics["tokens"] == 2
        if method.draft_length:
            assert generation.statistics["mean_accepted_length"] == 2
            assert (generation.statistics["accepted"], generation.statistics["rounds"]) == (2, 1)
            assert generation.statistics["acceptance_by_position"] == [1, 1, 0, 0]


def test_a_stop_token_at_the_limit_is_a_stop(script):
    for method in METHODS:
        for new, reason in ((1, "length"), (2, "stop"), (3, "stop")):
            result = ask(script([A, EOS, B]), TWO, method, eos_token_id=EOS, max_new_tokens=new)
            assert [each.finish_reason for each in result.generations] == [reason] * 2


@pytest.mark.parametrize("method", METHODS)
def test_any_of_several_stop_tokens_ends_the_text(script, method):
    pair = script([A, OTHER_HALF, HALF, B, C])
    for ids, length in (
        ([C, HALF], 3),
        ([B], 4),
        (B, 4),
        ([OTHER_HALF, HALF, A], 1),
        ([5, 6, *range(20, 90)], 3),
    ):
        assert [len(row) for row in tokens(ask(pair, TWO, method, eos_token_id=ids))] == [length] * 2
    assert tokens(ask(pair, TWO, method, eos_token_id=[]))[0][:5] == [A, OTHER_HALF, HALF, B, C]


def test_the_checkpoints_stop_tokens_and_sampling_are_the_defaults(script):
    defaults = GenerationDefaults(stop_ids=(B,), max_new_tokens=20, do_sample=True, temperature=1e-6)
    target, draft = script([A, A, B, A], defaults=defaults)
    result = generate(target, TWO, draft=draft, method=SpS(G), log_probs=True)
    assert tokens(result) == [[A, A, B]] * 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("said", "stop", "text", "kept"),
    [
        ([A, B, C, A, A], "bc", "a", 3),  # across tokens
        ([C, AB, C, C, C], "a", "c", 2),  # inside one
        ([C, C, C, AB, C], ["zz", "b", "ca"], "cc", 4),  # two end at once: the one that starts first
        ([HALF, OTHER_HALF, C, C], "\u00e9", "", 2),
        ([A, B, A, B, EOS], "bb", "abab", 5),  # none: the stop token ends it
    ],
)
def test_stop_strings_end_the_text_wherever_they_lie(script, method, said, stop, text, kept):
    result = ask(script(said), TWO, method, stop_strings=stop, eos_token_id=EOS)
    for generation in result.generations:
        assert (generation.text, generation.tokens) == (text, said[:kept])
        assert generation.finish_reason == ("stop" if EOS in said else "stop_string")
        assert generation.statistics["tokens"] <= kept + method.draft_length
        assert (generation.stop_string is None) == (EOS in said)


def table_pair(logits: np.ndarray, letters) -> tuple[Model, Model]:
    """A target with a table over the vocabulary, and a draft with the same one."""
    tables = [np.pad(logits, [(0, model.vocab_size - V)] * 3) for model in (TARGET_TABLE, DRAFT_TABLE)]
    return tuple(
        Model(model, {"table": jnp.asarray(each)}, letters)
        for model, each in zip((TARGET_TABLE, DRAFT_TABLE), tables, strict=True)
    )


def test_rows_end_each_for_its_own_reason(letters):
    logits = np.full((V, V, V), -5.0, np.float32)
    logits[:, A, A], logits[:, B, C], logits[:, C, EOS], logits[:, SPACE, AB] = 5, 5, 5, 5
    logits[:, AB, :] = np.nan
    pair = table_pair(logits, letters)
    for method in METHODS:
        found = []
        for prompts in ([[A], [B]], [[SPACE], [AB]], [[A], [SPACE]]):
            result = ask(pair, prompts, method, eos_token_id=EOS)
            found += [(each.finish_reason, each.tokens) for each in result.generations]
        endless, stopped, broken, mute = (
            ("length", [A] * 20),
            ("stop", [C, EOS]),
            ("invalid", [AB]),
            ("invalid", []),
        )
        assert found == [endless, stopped, broken, mute, endless, broken]


def test_the_number_of_new_tokens_is_exact(script):
    pair = script([A] * 50)
    for new in (1, 2, 3, 4, 5, 6, 9, 10, 11):
        for method in METHODS:
            result = ask(pair, TWO, method, max_new_tokens=new)
            assert tokens(result) == [[A] * new] * 2
            assert {each.finish_reason for each in result.generations} == {"length"}
            assert result.statistics["tokens"] == 2 * new


def test_samples_of_a_prompt_differ_where_there_is_chance(pair):
    cold, warm = (ask(pair, "c", SpS(G), samples=2, temperature=t) for t in (0, 1.2))
    assert tokens(cold)[0] == tokens(cold)[1] and tokens(warm)[0] != tokens(warm)[1]
    assert [(each.prompt, each.sample) for each in warm.generations] == [(0, 0), (0, 1)]
    again = ask(pair, "c", SpS(G), samples=2, temperature=1.2, row_ids=[1, 7])
    assert tokens(again)[0] == tokens(warm)[1] != tokens(again)[1]
    both = ask(pair, ["c", "a"], SpS(G), temperature=1.2, row_ids=[0, 1])
    assert tokens(both)[0] == tokens(warm)[0]


def test_samples_of_several_prompts_lie_side_by_side(pair):
    prompts = [[C], [A, B]]
    result = ask(pair, prompts, Autoregressive(), samples=2, temperature=[0, 1.0, 0, 1.0])
    assert [(each.prompt, each.sample) for each in result.generations] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert tokens(result)[::2] == tokens(ask(pair, prompts, Autoregressive()))


def test_the_seed_decides(pair):
    found = [tokens(ask(pair, TWO, SpS(G), temperature=1.0, seed=seed)) for seed in (1, 1, 2, 2**32 - 1)]
    assert found[0] == found[1]
    assert len({str(each) for each in found}) == 3


def test_another_rule_is_greedy_at_temperature_zero_and_follows_the_seed(pair):
    settings = {"rule": "block", "temperature": [0.0, 1.0]}
    result = ask(pair, TWO, SpS(G), **settings)
    assert tokens(result)[0] == tokens(ask(pair, TWO, Autoregressive()))[0]
    assert tokens(result)[1] != tokens(ask(pair, TWO, SpS(G), temperature=[0.0, 1.0]))[1]
    assert tokens(result) == tokens(ask(pair, TWO, SpS(G), **settings))
    assert tokens(result)[1] != tokens(ask(pair, TWO, SpS(G), **settings, seed=1))[1]


def test_streamed_pieces_are_the_text(pair):
    for settings in ({}, {"stop_strings": ["abab", "cc a"]}, {"eos_token_id": [SPACE, EOS]}):
        pieces = ["", ""]
        calls = []

        def listen(row, text):
            pieces[row] += text  # noqa: B023, read within the iteration
            calls.append(row)  # noqa: B023

        settings |= {"temperature": [0.0, 1.5], "seed": 3}
        result = ask(pair, [[C, A], [B]], SpS(G), on_text=listen, **settings)
        assert pieces == result.texts
        assert len(calls) > (4 if len(settings) == 2 else 0)
        silent = ask(pair, [[C, A], [B]], SpS(G), **settings)
        assert silent.texts == result.texts and tokens(silent) == tokens(result)


def test_the_stream_of_a_row_that_breaks_off_is_its_text(letters):
    logits = np.full((V, V, V), -5.0, np.float32)
    logits[:, C, A], logits[:, A, B], logits[:, B, :] = 5, 5, np.nan
    pair, pieces = table_pair(logits, letters), ["", ""]

    def listen(row, text):
        pieces[row] += text

    result = ask(pair, TWO, Autoregressive(), on_text=listen, stop_strings="bc")
    assert pieces == result.texts == ["ab", "ab"]
    assert result.generations[0].finish_reason == "invalid"


@pytest.mark.parametrize("method", METHODS)
def test_ctrl_c_returns_what_is_there(script, method):
    before, pieces = signal.getsignal(signal.SIGINT), ["", ""]

    def listen(row, text):
        pieces[row] += text
        if pieces[1].count("a") >= 7:
            signal.raise_signal(signal.SIGINT)

    result = ask(script([A, A, A, A, A, A, A, B] * 4), TWO, method, on_text=listen, stop_strings="bac")
    assert signal.getsignal(signal.SIGINT) is before
    assert [each.finish_reason for each in result.generations] == ["interrupted"] * 2
    assert 7 <= len(tokens(result)[0]) < 20
    assert pieces == result.texts
    assert tokens(result)[0] == ([A, A, A, A, A, A, A, B] * 4)[: len(tokens(result)[0])]


def test_an_error_of_the_listener_comes_out_and_restores_the_handler(script):
    before = signal.getsignal(signal.SIGINT)

    def listen(row, text):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ask(script([A] * 30), TWO, SpS(G), on_text=listen)
    assert signal.getsignal(signal.SIGINT) is before


def test_times_and_counters_are_reported(script):
    result = ask(script([A] * 30), TWO, SpS(G))
    assert result.prefill_seconds > 0 and result.decode_seconds > 0
    assert result.statistics["tokens"] == 40
    assert result.statistics["target_forwards"] == 4 == result.generations[0].statistics["rounds"]
    assert result.statistics["mean_accepted_length"] == 5
    assert result.statistics["draft_forwards"] == 16
    assert "target_forwards" not in result.generations[0].statistics


NAN = float("nan")


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"prompts": []}, ValueError, "no prompts"),
        ({"prompts": [[]]}, ValueError, "prompt 0 is empty"),
        ({"prompts": ""}, ValueError, "prompt 0 is empty"),
        ({"prompts": [[A], [V]]}, ValueError, "prompt 1 has token id 9, outside the vocabulary of 9"),
        ({"prompts": [A] * 129}, ValueError, "prompt 0 has 129 tokens .* context is 128"),
        ({"prompts": [[A], [A] * 109]}, ValueError, "prompt 1 has 109 tokens and asks for 20 more"),
        ({"prompts": [A] * 128, "max_new_tokens": None}, ValueError, "prompt 0 has 128 tokens"),
        ({"max_new_tokens": 0}, ValueError, "max_new_tokens must be a positive integer, got 0"),
        ({"max_new_tokens": -3}, ValueError, "max_new_tokens must be a positive integer"),
        ({"max_new_tokens": 2.5}, ValueError, "max_new_tokens must be a positive integer"),
        ({"max_new_tokens": True}, ValueError, "max_new_tokens must be a positive integer"),
        ({"max_new_tokens": 2**31 - 1}, ValueError, "asks for 2147483647 more"),
        ({"max_new_tokens": 2**40}, ValueError, "asks for 1099511627776 more"),
        ({"temperature": -1}, ValueError, "temperature must be"),
        ({"temperature": NAN}, ValueError, "temperature must be"),
        ({"temperature": [1.0, 1.0, 1.0]}, ValueError, "temperature must be one number or one for each of"),
        ({"top_k": -1}, ValueError, "top_k must be"),
        ({"top_p": 0}, ValueError, "top_p must be"),
        ({"top_p": 1.5}, ValueError, "top_p must be"),
        ({"samples": 0}, ValueError, "samples must be a positive integer"),
        ({"seed": -1}, ValueError, "seed must be an integer in"),
        ({"seed": 2**32}, ValueError, "seed must be an integer in"),
        ({"seed": 0.5}, ValueError, "seed must be an integer in"),
        ({"seed": None}, ValueError, "seed must be an integer in"),
        ({"row_ids": [0]}, ValueError, "row_ids must be 2 integers"),
        ({"row_ids": [0, -1]}, ValueError, "row_ids must be 2 integers"),
        ({"row_ids": [0.0, 1.0]}, ValueError, "row_ids must be 2 integers"),
        ({"row_ids": [0, 2**32]}, ValueError, "row_ids must be 2 integers"),
        ({"rule": "greedy"}, ValueError, "rule must be one of match, token, block, got 'greedy'"),
        ({"draft": None}, ValueError, "SpS needs a draft model"),
        ({"temprature": 1.0}, TypeError, "no generation setting 'temprature'; did you mean temperature"),
        ({"num_beams": 4}, ValueError, "num_beams=4 is not implemented"),
        ({"repetition_penalty": 1.1}, ValueError, "repetition_penalty=1.1 is not implemented"),
        ({"stop_strings": ""}, ValueError, "empty stop string"),
        ({"stop_strings": 5}, TypeError, "stop strings have to be"),
        ({"eos_token_id": -1}, ValueError, "eos_token_id"),
        ({"eos_token_id": "a"}, ValueError, "eos_token_id"),
    ],
)  # fmt: skip
def test_bad_requests_are_refused_before_anything_runs(pair, settings, error, message):
    target, draft = pair

    def never(*_, **__):
        raise AssertionError("a forward was run")

    class Untouched(TableModel):
        forward = never

    target, draft = (
        dataclasses.replace(model, model=Untouched(12, max_length=128)) for model in (target, draft)
    )
    settings = {"prompts": TWO, "draft": draft, "method": SpS(G), "max_new_tokens": 20, **settings}
    with pytest.raises(error, match=message):
        generate(target, **settings)


def test_without_a_tokenizer_only_ids_can_be_asked_for(pair, letters):
    target, draft = (dataclasses.replace(model, tokenizer=None) for model in pair)
    with pytest.raises(ValueError, match="the draft has 10 logits for a vocabulary of 12"):
        ask((target, draft), TWO, SpS(G))
    for settings in ({"stop_strings": "a"}, {"on_text": print}):
        with pytest.raises(ValueError, match="the target has no tokenizer"):
            generate(target, TWO, **settings)
    with pytest.raises(ValueError, match="prompt 0 is text, but the target has no tokenizer"):
        generate(target, "c")
    result = generate(target, TWO, max_new_tokens=20, temperature=1.0)
    assert result.texts == [None, None] and max(max(row) for row in tokens(result)) >= V


def test_a_draft_with_another_tokenizer_is_refused(pair, letters_folder, tmp_path):
    text = (letters_folder / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace('"c": 4', '"d": 4').replace('"c":4', '"d":4'))
    other = dataclasses.replace(pair[1], tokenizer=Tokenizer.from_folder(tmp_path))
    with pytest.raises(ValueError, match="target and draft need the same tokenizer, but id 4 is 'c' in one"):
        ask((pair[0], other), TWO, SpS(G))
    assert ask((pair[0], other), TWO, Autoregressive()).statistics["tokens"] == 40


def test_a_tokenizer_that_cannot_be_streamed_gives_its_text_at_the_end(script, letters_folder, tmp_path):
    target, draft = script([AB, C, A])
    parts = json.loads((letters_folder / "tokenizer.json").read_text())
    parts["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": False}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    pair = [
        dataclasses.replace(model, tokenizer=Tokenizer.from_folder(tmp_path)) for model in (target, draft)
    ]
    assert ask(pair, TWO, SpS(G), max_new_tokens=3).texts == ["ab c a"] * 2
    for settings in ({"stop_strings": "a"}, {"on_text": print}):
        with pytest.raises(ValueError, match="WordPiece cannot be streamed"):
            ask(pair, TWO, SpS(G), **settings)


def test_the_models_own_width_and_context_are_limits(letters):
    narrow = TableModel(7, max_length=16)
    model = Model(narrow, narrow.init(0, 2.0), letters)
    result = generate(model, [[A] * 4, [B] * 15], temperature=2.0)
    assert [len(row) for row in tokens(result)] == [12, 1]
    assert max(max(row) for row in tokens(result)) < 7
