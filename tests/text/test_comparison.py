"""Different tokenizers of target and draft are refused, whatever the difference; the same ones are not."""

import json
import shutil

import pytest
import sentencepiece
from tokenizers import Tokenizer as Trained
from tokenizers import normalizers, pre_tokenizers

from sbjax.text import Tokenizer


def changed(source, target, change):
    """A copy of a folder whose tokenizer.json, as a dict, went through `change`."""
    shutil.copytree(source, target)
    content = json.loads((target / "tokenizer.json").read_text())
    change(content)
    (target / "tokenizer.json").write_text(json.dumps(content))
    return Tokenizer.from_folder(target)


def assert_differs(first, second, message):
    assert not first.same_as(second)
    assert not second.same_as(first)
    with pytest.raises(ValueError, match=f"target and draft need the same tokenizer, but .*{message}"):
        first.require_same(second)


def test_equal_files_are_the_same(qwen_folder, llama_folder, gemma_folder):
    for folder in (qwen_folder, llama_folder, gemma_folder):
        first, second = Tokenizer.from_folder(folder), Tokenizer.from_folder(folder)
        assert first.same_as(second)
        first.require_same(second)


def test_what_does_not_change_ids_may_differ(qwen_folder, llama3_folder, tmp_path):
    qwen = Tokenizer.from_folder(qwen_folder)
    # Another post-processor, bos and eos tokens and chat template around the same vocabulary.
    assert qwen.same_as(Tokenizer.from_folder(llama3_folder))

    def truncate_and_split_merges(content):
        content["truncation"] = {
            "direction": "Right",
            "max_length": 4,
            "strategy": "LongestFirst",
            "stride": 0,
        }
        content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
        content["added_tokens"][0]["lstrip"] = True

    assert qwen.same_as(changed(qwen_folder, tmp_path / "truncated", truncate_and_split_merges))


def test_other_vocabularies_are_refused(qwen_folder, llama_folder, tmp_path):
    qwen, llama = Tokenizer.from_folder(qwen_folder), Tokenizer.from_folder(llama_folder)
    assert_differs(qwen, llama, r"id 0 is '!' in one and '<unk>' in the other \(464 and 420 tokens\)")

    def swap(content):
        vocab = content["model"]["vocab"]
        vocab["a"], vocab["b"] = vocab["b"], vocab["a"]

    assert_differs(
        qwen, changed(qwen_folder, tmp_path / "swapped", swap), "is 'a' in one and 'b' in the other"
    )
    longer = {"eos_token": "<|im_end|>", "pad_token": "<pad>"}
    folder = shutil.copytree(qwen_folder, tmp_path / "longer")
    (folder / "tokenizer_config.json").write_text(json.dumps(longer))
    assert_differs(qwen, Tokenizer.from_folder(folder), "id 464 is no token in one and '<pad>' in the other")


@pytest.mark.parametrize("part", ["merges", "normalizer", "pre_tokenizer", "decoder", "model options"])
def test_other_ways_to_cut_a_text_are_refused(qwen_folder, tmp_path, part):
    folder = shutil.copytree(qwen_folder, tmp_path / "other")
    if part in ("merges", "model options"):
        content = json.loads((folder / "tokenizer.json").read_text())
        if part == "merges":
            content["model"]["merges"].reverse()
        else:
            content["model"]["ignore_merges"] = True
        (folder / "tokenizer.json").write_text(json.dumps(content))
    else:
        trained = Trained.from_file(str(folder / "tokenizer.json"))
        if part == "normalizer":
            trained.normalizer = normalizers.NFKC()
        elif part == "pre_tokenizer":
            trained.pre_tokenizer = pre_tokenizers.ByteLevel()
        else:
            trained.decoder = None
        trained.save(str(folder / "tokenizer.json"))
    assert_differs(
        Tokenizer.from_folder(qwen_folder), Tokenizer.from_folder(folder), f"differ in their {part}"
    )


def test_a_model_file_and_its_conversion_are_the_same(llama_folder, llama_json_folder):
    assert Tokenizer.from_folder(llama_folder).same_as(Tokenizer.from_folder(llama_json_folder))


def test_a_model_file_and_another_conversion_are_not(llama_folder, llama_json_folder, tmp_path):
    folder = shutil.copytree(llama_json_folder, tmp_path / "converted")
    trained = Trained.from_file(str(folder / "tokenizer.json"))
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.save(str(folder / "tokenizer.json"))
    assert_differs(
        Tokenizer.from_folder(llama_folder),
        Tokenizer.from_folder(folder),
        "cut the text .The quick.* into different tokens",
    )


def test_model_files_with_other_settings_are_refused(llama_folder, llama_model, tmp_path):
    folder = shutil.copytree(llama_folder, tmp_path / "legacy")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"legacy": True}))
    assert_differs(Tokenizer.from_folder(llama_folder), Tokenizer.from_folder(folder), "leading space")
    # The same pieces with one other score: protobuf keeps a piece's score as 4 bytes behind the tag 0x15.
    size = sentencepiece.SentencePieceProcessor(model_proto=llama_model).get_piece_size()
    at = llama_model.index(b"\x15", len(llama_model) // 2) + 1
    (folder / "tokenizer.model").write_bytes(llama_model[:at] + b"\x00\x00\x20\x41" + llama_model[at + 4 :])
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    other = Tokenizer.from_folder(folder)
    assert other.vocab_size == size
    assert_differs(Tokenizer.from_folder(llama_folder), other, "scores")
