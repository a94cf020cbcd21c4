"""Small tokenizers trained on the spot, in the formats that checkpoints come with."""

import io
import json
import random
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEMPLATES = Path(__file__).parent / "templates"
CHAT_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TOKENS += ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
WORDS = (
    "the quick brown fox jumps over lazy dogs while Speculative decoding drafts tokens and verifies them; "
    "a target model, isn't it? def f(x): return x ** 2 + 10 na\u00efve caf\u00e9 \u00fcber "
    "\u4f60\u597d \u4e16\u754c system user assistant You are a helpful model.\n"
)
TEXTS = [
    "",
    "hello world",
    "the quick brown fox isn't lazy; it jumps 12345 times!",
    "a  b   c\t\td\n\n\ne \r\n f",
    "def f(x):\n    return x ** 2\n",
    "na\u00efve caf\u00e9 \u00fcber, e\u0301 composed and not",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627",
    "emoji \U0001f600\U0001f469\u200d\U0001f680\U0001f3f3\ufe0f\u200d\U0001f308 end",
    "replacement \ufffd and a zero \x00 byte",
    "trailing space ",
    "x<|endoftext|>y <|im_start|>user\nhi<|im_end|>\n<tool_call>z</tool_call>",
    "a</s>b </s> c<s>d <unk> e",
    "ends with </s>",
]


def corpus() -> list[str]:
    """Lines of shuffled words."""
    words, rng = WORDS.split(" "), random.Random(0)
    return [" ".join(rng.choices(words, k=20)) for _ in range(400)]


def save(folder: Path, tokenizer_config: dict, **files: dict) -> Path:
    """Writes tokenizer_config.json and further JSON files into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def train_byte_level(vocab_size: int = 500) -> tokenizers.Tokenizer:
    """A byte-level BPE as Qwen and Llama 3 have it."""
    split = pre_tokenizers.Split(tokenizers.Regex(r"\s*\p{L}+|\p{N}|[^\s\p{L}\p{N}]+|\s+"), "isolated")
    tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(CHAT_TOKENS)
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])
    return tokenizer


def train_sentencepiece(**options) -> bytes:
    """A BPE with byte fallback as Llama 2, Mistral and Gemma have it."""
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()),
        model_writer=buffer,
        model_type="bpe",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        character_coverage=0.98,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        num_threads=1,
        minloglevel=2,
        **{"vocab_size": 420, **options},
    )
    return buffer.getvalue()


@pytest.fixture(scope="session")
def qwen_folder(tmp_path_factory) -> Path:
    """tokenizer.json, byte level; like Qwen."""
    folder = save(
        tmp_path_factory.mktemp("qwen"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
            "clean_up_tokenization_spaces": False,
        },
    )
    train_byte_level().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text((TEMPLATES / "qwen.jinja").read_text())
    return folder


@pytest.fixture(scope="session")
def llama3_folder(tmp_path_factory) -> Path:
    """tokenizer.json, byte level, with a bos token added by the post-processor; like Llama 3."""
    tokenizer = train_byte_level()
    bos = ("<|endoftext|>", tokenizer.token_to_id("<|endoftext|>"))
    template = processors.TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
    tokenizer.post_processor = processors.Sequence([tokenizer.post_processor, template])
    folder = save(
        tmp_path_factory.mktemp("llama3"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|endoftext|>",
            "eos_token": "<|eot_id|>",
            "chat_template": (TEMPLATES / "llama3.jinja").read_text(),
        },
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def llama_model() -> bytes:
    """A tokenizer.model like Llama's: with a leading space."""
    return train_sentencepiece(unk_id=0, bos_id=1, eos_id=2)


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory, llama_model) -> Path:
    """tokenizer.model; like Llama 2."""
    config = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False}
    config |= {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "legacy": False}
    folder = save(tmp_path_factory.mktemp("llama"), config, config={"model_type": "llama"})
    (folder / "tokenizer.model").write_bytes(llama_model)
    return folder


@pytest.fixture(scope="session")
def llama_json_folder(tmp_path_factory, llama_folder) -> Path:
    """The same vocabulary as tokenizer.json, as transformers 4 converted it."""
    from transformers import AutoTokenizer

    fast = AutoTokenizer.from_pretrained(llama_folder).backend_tokenizer
    space = "\u2581"
    fast.pre_tokenizer = None
    fast.normalizer = normalizers.Sequence([normalizers.Prepend(space), normalizers.Replace(" ", space)])
    folder = save(
        tmp_path_factory.mktemp("llama_json"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
        },
    )
    fast.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def gemma_folder(tmp_path_factory) -> Path:
    """tokenizer.model without a leading space and with user-defined pieces; like Gemma."""
    turns = ["<start_of_turn>", "<end_of_turn>"]
    proto = train_sentencepiece(
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>",
        add_dummy_prefix=False, user_defined_symbols=[*turns, "\n\n", "\u2581\u2581"],
    )  # fmt: skip
    config = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False}
    config |= {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    config["chat_template"] = (TEMPLATES / "gemma.jinja").read_text()
    folder = save(tmp_path_factory.mktemp("gemma"), config, config={"model_type": "gemma"})
    (folder / "tokenizer.model").write_bytes(proto)
    return folder


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Texts of many kinds."""
    return TEXTS
