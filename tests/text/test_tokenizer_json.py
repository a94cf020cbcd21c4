"""tokenizer.json: ids and texts equal transformers', and what the files beside it add."""

import json
import shutil

import numpy as np
import pytest
import tokenizers
from transformers import AutoTokenizer

from sbjax.text import Tokenizer

FOLDERS = ["qwen_folder", "llama3_folder", "llama_json_folder"]


@pytest.fixture(params=FOLDERS)
def folder(request):
    return request.getfixturevalue(request.param)


def rewrite(source, target, **changes):
    """Copies a folder and changes keys of its tokenizer_config.json; None removes a key."""
    shutil.copytree(source, target)
    config = json.loads((target / "tokenizer_config.json").read_text()) | changes
    config = {key: value for key, value in config.items() if value is not None}
    (target / "tokenizer_config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_ids_and_texts_equal_transformers(folder, texts, add_special_tokens):
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    for text in texts:
        ids = ours.encode(text, add_special_tokens)
        assert ids == theirs.encode(text, add_special_tokens=add_special_tokens), text
        for skip in (True, False):
            assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip), text


def test_any_ids_decode_as_in_transformers(folder):
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    rng = np.random.default_rng(0)
    for _ in range(50):
        ids = rng.integers(0, ours.vocab_size, size=30)
        assert ours.decode(ids) == theirs.decode(ids.tolist(), skip_special_tokens=True)


def test_sizes_and_special_ids(qwen_folder, llama3_folder):
    qwen, llama = Tokenizer.from_folder(qwen_folder), Tokenizer.from_folder(llama3_folder)
    theirs = AutoTokenizer.from_pretrained(qwen_folder)
    assert qwen.vocab_size == max(theirs.get_vocab().values()) + 1 == len(theirs)
    assert qwen.bos_id is None
    assert qwen.eos_ids == (theirs.eos_token_id,)
    assert llama.encode("x")[0] == llama.bos_id
    assert llama.bos_id not in llama.encode("x", add_special_tokens=False)


def test_tokens_that_only_the_configuration_names_are_added(qwen_folder, tmp_path):
    size = Tokenizer.from_folder(qwen_folder).vocab_size
    decoder = {str(size): {"content": "<new>", "lstrip": True, "rstrip": False, "special": True}}
    changes = {"added_tokens_decoder": decoder, "pad_token": "<other>"}
    folder = rewrite(qwen_folder, tmp_path / "more", **changes)
    ours, theirs = Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)
    text = "a <new> b<other>c"
    assert ours.encode(text) == theirs.encode(text)
    assert size in ours.encode(text)
    assert ours.vocab_size == len(theirs) == size + 2
    assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text), skip_special_tokens=True)


def test_special_tokens_map_counts_without_added_tokens_decoder(qwen_folder, tmp_path):
    folder = rewrite(qwen_folder, tmp_path / "old", eos_token=None)
    assert Tokenizer.from_folder(folder).eos_ids == ()
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<|eot_id|>"}}))
    ours = Tokenizer.from_folder(folder)
    assert ours.eos_ids == (AutoTokenizer.from_pretrained(folder).eos_token_id,)
    assert ours.decode(ours.encode("a<|eot_id|>"), skip_special_tokens=False) == "a<|eot_id|>"


def test_truncation_and_padding_left_in_the_file_are_off(qwen_folder, tmp_path):
    folder = rewrite(qwen_folder, tmp_path / "cut")
    trained = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    trained.enable_truncation(max_length=4)
    trained.enable_padding(length=64)
    trained.save(str(folder / "tokenizer.json"))
    expected = Tokenizer.from_folder(qwen_folder).encode("the quick brown fox jumps over dogs")
    assert len(expected) > 4
    assert Tokenizer.from_folder(folder).encode("the quick brown fox jumps over dogs") == expected


def test_ids_that_contradict_the_file_are_refused(qwen_folder, tmp_path):
    decoder = {"700": {"content": "<new>", "special": True}}
    folder = rewrite(qwen_folder, tmp_path / "gap", added_tokens_decoder=decoder)
    with pytest.raises(ValueError, match="'<new>' the id 700"):
        Tokenizer.from_folder(folder)


def test_bad_folders_have_clear_errors(qwen_folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder"):
        Tokenizer.from_folder(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"needs a tokenizer\.json or a tokenizer\.model"):
        Tokenizer.from_folder(tmp_path)
    folder = rewrite(qwen_folder, tmp_path / "damaged")
    whole = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a readable tokenizer"):
        Tokenizer.from_folder(folder)
    (folder / "tokenizer_config.json").write_text('{"eos_token": ')
    with pytest.raises(ValueError, match=r"tokenizer_config\.json is not valid JSON"):
        Tokenizer.from_folder(folder)
    (folder / "tokenizer_config.json").write_text('{"extra_special_tokens": [5]}')
    with pytest.raises(ValueError, match="5, which is not a token"):
        Tokenizer.from_folder(folder)
    (folder / "tokenizer_config.json").write_text("[]")
    with pytest.raises(ValueError, match="holds a list"):
        Tokenizer.from_folder(folder)


def test_bad_texts_and_ids_have_clear_errors(qwen_folder):
    tokenizer = Tokenizer.from_folder(qwen_folder)
    with pytest.raises(TypeError, match="has to be a str, not list"):
        tokenizer.encode(["a"])
    with pytest.raises(ValueError, match="no valid Unicode at character 1"):
        tokenizer.encode("a\ud83d")
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=f"token id {wrong} is outside the vocabulary"):
            tokenizer.decode([1, wrong])
    for wrong in ([1.5], [True], [[1]], 3):
        with pytest.raises(TypeError, match="flat sequence of ints"):
            tokenizer.decode(wrong)
    assert tokenizer.decode([]) == ""
