"""tokenizer.model: ids and texts equal those of transformers and of sentencepiece itself."""

import json

import numpy as np
import pytest
import sentencepiece
from transformers import AutoTokenizer

from sbjax.text import Tokenizer


def variant(tmp_path, proto, files=None, **config):
    """A folder with a tokenizer.model and a configuration."""
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"} | config
    for name, value in {
        "config": {"model_type": "llama"},
        "tokenizer_config": config,
        **(files or {}),
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(value))
    (tmp_path / "tokenizer.model").write_bytes(proto)
    return tmp_path


def assert_equal(folder, texts):
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for text in texts:
        for special in (True, False):
            ids = ours.encode(text, special)
            assert ids == theirs.encode(text, add_special_tokens=special), text
            for skip in (True, False):
                assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("add_eos_token", [True, False])
def test_llama_equals_transformers(tmp_path, llama_model, texts, legacy, add_eos_token):
    folder = variant(tmp_path, llama_model, legacy=legacy, add_bos_token=True, add_eos_token=add_eos_token)
    # Spaces at the start of a prefixed text: see test_leading_spaces below.
    assert_equal(folder, [text.replace("> ", ">") if legacy else text for text in texts])


def test_legacy_llama_equals_its_tokenizer_json(tmp_path, llama_model, llama_json_folder, texts):
    ours = Tokenizer.from_folder(variant(tmp_path, llama_model, legacy=True))
    converted = AutoTokenizer.from_pretrained(llama_json_folder)
    for text in [*texts, " leading", "  two", "a</s>  b"]:
        ids = ours.encode(text, add_special_tokens=False)
        assert ids == converted.encode(text, add_special_tokens=False), text
        assert ours.decode(ids) == converted.decode(ids, skip_special_tokens=True), text


def test_legacy_changes_what_follows_a_special_token(tmp_path, llama_model):
    new = Tokenizer.from_folder(variant(tmp_path, llama_model, legacy=False)).encode("a</s>the")
    old = Tokenizer.from_folder(variant(tmp_path, llama_model, legacy=True)).encode("a</s>the")
    assert new != old


def test_gemma_equals_transformers(gemma_folder, texts):
    turns = "<start_of_turn>user\nhello  there\n\n\nyou<end_of_turn>\n<start_of_turn>model\n"
    assert_equal(gemma_folder, [*texts, turns, " leading", "<bos>" + turns])


def test_any_ids_decode_as_in_transformers(llama_folder, gemma_folder):
    rng = np.random.default_rng(0)
    for folder in (llama_folder, gemma_folder):
        ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
        # Mostly byte tokens, so that runs of bytes that are and are not UTF-8 occur.
        for high in (ours.vocab_size, 270):
            for _ in range(40):
                ids = rng.integers(0, high, size=20)
                assert ours.decode(ids) == theirs.decode(ids.tolist(), skip_special_tokens=True)


@pytest.mark.parametrize("text", [" leading", "  two", "\u2581x", " ", "\n x"])
def test_leading_spaces_are_kept_as_sentencepiece_keeps_them(llama_folder, llama_model, text):
    # transformers 5 drops one of them, transformers 4 and the models' own training do not.
    expected = sentencepiece.SentencePieceProcessor(model_proto=llama_model).encode(text)
    ours = Tokenizer.from_folder(llama_folder)
    assert ours.encode(text, add_special_tokens=False) == expected
    assert ours.decode(expected) == text.replace("\u2581", " ")


def test_added_tokens_of_either_file(tmp_path, llama_model):
    size = 420
    token = {"content": "<pad>", "lstrip": True, "rstrip": True, "normalized": False, "special": True}
    new = variant(
        tmp_path, llama_model, legacy=True, add_bos_token=True, added_tokens_decoder={str(size): token}
    )
    ours, theirs = Tokenizer.from_folder(new), AutoTokenizer.from_pretrained(new)
    assert ours.vocab_size == size + 1
    for text in ("a <pad>  b", "a<pad>b", "<pad>"):
        assert ours.encode(text) == theirs.encode(text)
        assert size in ours.encode(text)
    files = {
        "added_tokens": {"<pad>": size, "<tool>": size + 1},
        "special_tokens_map": {"pad_token": "<pad>"},
    }
    old = Tokenizer.from_folder(variant(tmp_path, llama_model, files, legacy=True))
    assert old.vocab_size == size + 2
    assert size in old.special_ids
    assert size + 1 not in old.special_ids
    assert old.decode(old.encode("x<tool>y<pad>")) == "x<tool> y"


def test_the_longest_of_several_added_tokens_is_taken(tmp_path, llama_model):
    flags = {"normalized": False, "special": True}
    tokens = {"420": {"content": "<tool>", **flags}, "421": {"content": "<tool>s", **flags}}
    folder = variant(tmp_path, llama_model, added_tokens_decoder=tokens, legacy=False, add_bos_token=False)
    ids = Tokenizer.from_folder(folder).encode("<tool>s<tool>")
    assert ids == [421, 420] == AutoTokenizer.from_pretrained(folder).encode("<tool>s<tool>")


def test_named_tokens_without_an_id_come_after_the_vocabulary(tmp_path, llama_model):
    folder = variant(tmp_path, llama_model, pad_token="[PAD]", legacy=False, add_bos_token=True)
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.encode("a[PAD]b") == theirs.encode("a[PAD]b")
    assert ours.vocab_size == len(theirs) == 421


def test_a_bare_model_has_its_own_bos_and_eos(tmp_path, llama_model):
    (tmp_path / "tokenizer.model").write_bytes(llama_model)
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, (2,))
    assert tokenizer.encode("hello")[0] == 1


def test_bad_models_have_clear_errors(tmp_path, llama_model):
    with pytest.raises(ValueError, match="is not a readable SentencePiece model"):
        Tokenizer.from_folder(variant(tmp_path, llama_model[:1000]))
    token = {"content": "word", "single_word": True}
    with pytest.raises(ValueError, match="'word' asks for single_word"):
        Tokenizer.from_folder(variant(tmp_path, llama_model, added_tokens_decoder={"500": token}))
