"""Streams of text: all pushes together are the decoded text, and nothing shown is ever taken back."""

import random

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models

from sbjax.text import StreamDecoder, Tokenizer

FOLDERS = ["qwen_folder", "llama3_folder", "llama_json_folder", "llama_folder", "gemma_folder"]


@pytest.fixture(params=FOLDERS)
def tokenizer(request):
    return Tokenizer.from_folder(request.getfixturevalue(request.param))


def assert_streams(tokenizer, ids, rng, skip=True):
    """Pushes in random portions and compares with the text of the whole, and of every prefix."""
    whole = tokenizer.decode(ids, skip)
    decoder, shown, start = StreamDecoder(tokenizer, skip), "", 0
    while start < len(ids):
        end = start + rng.randint(0, 4)
        shown += decoder.push(ids[start:end])
        start = end
        assert whole.startswith(shown), (shown, whole)
    assert shown + decoder.finish() == whole


@pytest.mark.parametrize("skip", [True, False])
def test_pushes_together_are_the_text(tokenizer, texts, skip):
    rng = random.Random(1)
    for text in [*texts, "".join(texts), "\U0001f600" * 30, "\ufffd" * 30, " " * 20]:
        assert_streams(tokenizer, tokenizer.encode(text), rng, skip)


def test_any_ids_in_any_order(tokenizer):
    rng, draws = random.Random(2), np.random.default_rng(2)
    # The first ids are the single bytes: mostly sequences that are not UTF-8.
    for high in (tokenizer.vocab_size, 270):
        for _ in range(60):
            assert_streams(tokenizer, draws.integers(0, high, size=60).tolist(), rng)


def test_no_part_of_a_character_is_shown(tokenizer):
    # In characters that no training text held, every token is a byte.
    ids = tokenizer.encode("a\U0001f680b", add_special_tokens=False)
    assert len(ids) >= 6
    decoder = StreamDecoder(tokenizer)
    shown = [decoder.push([index]) for index in ids]
    assert not any("\ufffd" in piece for piece in shown)
    assert "".join(shown) == "a\U0001f680b"
    assert decoder.finish() == ""


def test_text_is_shown_as_soon_as_it_is_certain(tokenizer):
    ids = tokenizer.encode("the quick brown fox jumps", add_special_tokens=False)
    decoder = StreamDecoder(tokenizer)
    for n in range(1, len(ids) + 1):
        decoder.push([ids[n - 1]])
        assert decoder.tail() == ""
    assert decoder.finish() == ""


def test_what_is_held_back_comes_at_the_end(tokenizer):
    ids = tokenizer.encode("a\U0001f680", add_special_tokens=False)[:-1]
    decoder = StreamDecoder(tokenizer)
    assert decoder.push(ids) == "a"
    assert decoder.tail() == ""
    assert "a" + decoder.finish() == tokenizer.decode(ids)
    assert "\ufffd" in tokenizer.decode(ids)


def test_tail_is_the_text_of_a_complete_run_of_bytes(llama_folder):
    tokenizer = Tokenizer.from_folder(llama_folder)
    ids = tokenizer.encode("a\U0001f680", add_special_tokens=False)
    decoder = StreamDecoder(tokenizer)
    assert decoder.push(ids) == "a"
    assert decoder.tail() == "\U0001f680"
    assert decoder.push(tokenizer.encode("b", add_special_tokens=False)) != ""


class Counting:
    """A tokenizer that counts the ids it decodes."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.decoded = 0

    def __getattr__(self, name):
        return getattr(self.tokenizer, name)

    def decode(self, ids, skip_special_tokens=True):
        self.decoded += len(ids)
        return self.tokenizer.decode(ids, skip_special_tokens)


@pytest.mark.parametrize("text", ["the quick brown fox ", "\U0001f600", "\ufffd"])
def test_a_push_costs_the_same_in_a_long_text(tokenizer, text):
    counting = Counting(tokenizer)
    decoder = StreamDecoder(counting)
    ids = tokenizer.encode(text * 200, add_special_tokens=False)
    for index in ids:
        decoder.push([index])
    decoder.finish()
    assert counting.decoded <= 20 * len(ids)


def test_a_decoder_that_changes_its_past_is_refused(tmp_path):
    vocabulary = {"a": 0, "##b": 1, "[UNK]": 2}
    trained = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    trained.decoder = decoders.WordPiece()
    trained.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="decoder WordPiece cannot be streamed"):
        StreamDecoder(Tokenizer.from_folder(tmp_path))
