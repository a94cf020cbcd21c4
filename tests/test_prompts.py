"""What counts as a prompt, as many prompts, and as neither."""

import numpy as np
import pytest

from sbjax.prompts import token_lists

VOCAB = 9


def test_one_prompt_of_every_kind(letters):
    assert token_lists("cab", letters, VOCAB) == [[4, 8]]
    assert token_lists([4, 8], letters, VOCAB) == [[4, 8]]
    assert token_lists((4, 8), None, VOCAB) == [[4, 8]]
    assert token_lists(np.array([4, 8], np.int64), None, VOCAB) == [[4, 8]]
    assert token_lists([np.int32(4), np.int32(8)], None, VOCAB) == [[4, 8]]
    assert token_lists([{"role": "user", "content": "c"}], letters, VOCAB) == [[4, 3]]


def test_many_prompts_of_all_kinds_at_once(letters):
    chat = [{"role": "user", "content": "c"}, {"role": "assistant", "content": "a"}]
    found = token_lists(["cab", [2], np.array([3, 3]), chat], letters, VOCAB)
    assert found == [[4, 8], [2], [3, 3], [4, 8]]
    assert token_lists([[1, 2], [3]], None, VOCAB) == [[1, 2], [3]]
    assert token_lists(np.array([[1, 2], [3, 4]]), None, VOCAB) == [[1, 2], [3, 4]]
    assert token_lists(["c"], letters, VOCAB) == [[4]]
    assert all(type(token) is int for token in token_lists(np.array([4, 8]), None, VOCAB)[0])


def test_real_id_zero_is_a_token(letters):
    assert token_lists([0, 0], None, VOCAB) == [[0, 0]]


@pytest.mark.parametrize("nothing", ["", [], [[]], [[2], []], ["c", ""], np.zeros((0,), np.int32)])
def test_empty_prompts_are_refused(letters, nothing):
    with pytest.raises(ValueError, match=r"empty|no prompts"):
        token_lists(nothing, letters, VOCAB)


def test_an_empty_prompt_is_named():
    with pytest.raises(ValueError, match="prompt 1 is empty"):
        token_lists([[2], []], None, VOCAB)


@pytest.mark.parametrize(("ids", "wrong"), [([2, 9], 9), ([-1], -1), ([2**40], 2**40)])
def test_ids_outside_the_vocabulary_are_named(ids, wrong):
    with pytest.raises(ValueError, match=f"prompt 0 has token id {wrong}, outside the vocabulary of 9"):
        token_lists(ids, None, VOCAB)


@pytest.mark.parametrize("prompts", ["c", ["c"], [{"role": "user", "content": "c"}], [[2], "c"]])
def test_text_without_a_tokenizer_is_refused(prompts):
    with pytest.raises(ValueError, match=r"prompt \d is text, but the target has no tokenizer"):
        token_lists(prompts, None, VOCAB)


@pytest.mark.parametrize(
    "prompts",
    [5, None, 2.5, {"role": "user"}, [1.5], [[1.5]], [None], [[1, "c"]], [[[1]]], [[1, [2]]], [True], {1, 2}],
)  # fmt: skip
def test_what_is_no_prompt_is_a_type_error(letters, prompts):
    with pytest.raises(TypeError, match="prompt"):
        token_lists(prompts, letters, VOCAB)
