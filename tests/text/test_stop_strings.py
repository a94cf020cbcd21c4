"""Stop strings: found wherever they lie in the tokens, never shown in part."""

import numpy as np
import pytest

from sbjax.text import Cut, StopStrings, TextStream, Tokenizer, cut

FOLDERS = ["qwen_folder", "llama_folder", "gemma_folder"]


@pytest.fixture(params=FOLDERS)
def tokenizer(request):
    return Tokenizer.from_folder(request.getfixturevalue(request.param))


def test_strings_are_checked():
    assert StopStrings("ab").strings == ("ab",)
    assert StopStrings(["b", "a", "b"]).strings == ("b", "a")
    assert StopStrings().strings == ()
    with pytest.raises(ValueError, match="empty stop string"):
        StopStrings(["a", ""])
    for wrong in ([1], 5, None, {"a"}):
        with pytest.raises(TypeError, match="a str or a list of str"):
            StopStrings(wrong)


def test_the_earliest_start_is_found_and_there_the_longest():
    stop = StopStrings(["bc", "bcd", "abx", "d"])
    assert stop.find("xabcde") == (2, "bcd")
    assert stop.find("xabx bc") == (1, "abx")
    assert stop.find("bc") == (0, "bc")
    assert stop.find("xyz") is None
    assert StopStrings().find("abc") is None


def test_hold_is_the_longest_beginning_at_the_end():
    stop = StopStrings(["\n\nQ:", "aab"])
    assert stop.hold("text\n\nQ") == 3
    assert stop.hold("text\n") == 1
    assert stop.hold("aaa") == 2
    assert stop.hold("text") == 0
    assert stop.hold("") == 0
    assert StopStrings(["x"]).hold("y") == 0


def smallest_prefix(tokenizer, ids, strings):
    """The definition: the first number of ids whose text holds a stop string."""
    for n in range(1, len(ids) + 1):
        text = tokenizer.decode(ids[:n])
        if (found := StopStrings(strings).find(text)) is not None:
            return Cut(n, text[: found[0]], found[1])
    return Cut(len(ids), tokenizer.decode(ids), None)


@pytest.mark.parametrize(
    "strings",
    [
        ["jumps"],
        "\n",
        ["over lazy", "over"],
        ["\U0001f600"],
        ["\u00e9 \U0001f600x", "zz"],
        ["not there"],
        ["umps o"],
        ["t"],
    ],
    ids=repr,
)
def test_cut_equals_its_definition(tokenizer, strings):
    ids = tokenizer.encode(
        "the quick fox jumps over lazy dogs caf\u00e9 \U0001f600x\n end", add_special_tokens=False
    )
    expected = smallest_prefix(tokenizer, ids, strings)
    assert cut(tokenizer, ids, strings) == expected
    assert cut(tokenizer, ids, StopStrings(strings)) == expected
    assert (expected.matched is None) == (strings == ["not there"])


def test_cut_equals_its_definition_on_any_ids(tokenizer):
    rng = np.random.default_rng(3)
    for _ in range(80):
        ids = rng.integers(0, tokenizer.vocab_size, size=40).tolist()
        text = tokenizer.decode(ids).replace("\ufffd", "")
        start = int(rng.integers(0, max(1, len(text) - 3)))
        strings = [text[start : start + 3] or "x", "the", text[:2] or "y"]
        assert cut(tokenizer, ids, strings) == smallest_prefix(tokenizer, ids, strings)


def test_a_stop_string_inside_one_token_cuts_the_text_there(qwen_folder):
    tokenizer = Tokenizer.from_folder(qwen_folder)
    (index,) = tokenizer.encode(" quick", add_special_tokens=False)
    ids = [*tokenizer.encode("the", add_special_tokens=False), index, index]
    assert cut(tokenizer, ids, "ui") == Cut(len(ids) - 1, "the q", "ui")


def test_a_stream_never_shows_part_of_a_stop_string(tokenizer):
    text = "the quick brown fox jumps over lazy dogs and the rest"
    ids = tokenizer.encode(text, add_special_tokens=False)
    whole = tokenizer.decode(ids)
    for strings in (["jumps over lazy"], ["jumps over cats", "lazy"], ["restless"]):
        for portion in (1, 2, 3, len(ids)):
            stream, shown = TextStream(tokenizer, StopStrings(strings)), ""
            expected = cut(tokenizer, ids, strings)
            for start in range(0, len(ids), portion):
                shown += stream.push(ids[start : start + portion])
                assert expected.text.startswith(shown)
            shown += stream.finish()
            assert (stream.n_ids, shown, stream.matched) == expected
            if stream.matched is not None:
                assert stream.push(ids) == ""
                assert stream.n_ids == expected.n_ids
    assert expected.text == whole


def test_without_stop_strings_a_stream_shows_everything(tokenizer):
    ids = tokenizer.encode("the quick \U0001f600", add_special_tokens=False)
    stream = TextStream(tokenizer)
    assert stream.push(ids) + stream.finish() == tokenizer.decode(ids)
    assert (stream.n_ids, stream.matched) == (len(ids), None)


def test_special_tokens_can_be_stop_strings_where_they_are_kept(qwen_folder):
    tokenizer = Tokenizer.from_folder(qwen_folder)
    ids = tokenizer.encode("a<|im_end|>b")
    assert cut(tokenizer, ids, "<|im_end|>").matched is None
    assert cut(tokenizer, ids, "<|im_end|>", skip_special_tokens=False) == Cut(2, "a", "<|im_end|>")
