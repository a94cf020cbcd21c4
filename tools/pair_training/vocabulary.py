"""The pair's tokenizer: byte-level byte-pair encoding, trained on the corpus."""

import json
import pathlib
from collections.abc import Iterable

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END_OF_TEXT = "<|endoftext|>"
END_OF_TEXT_ID = 0


def train_tokenizer(documents: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learns merges. Any text can be encoded: all bytes are tokens. Digits stay single.

    Args:
      documents: the text.
      vocab_size: tokens in all, at least 257: the bytes and ``END_OF_TEXT``.

    Raises:
      ValueError: ``vocab_size`` is too small, or the text too short to fill it.
    """
    if vocab_size < 257:
        raise ValueError(f"vocab_size must be at least 257 (256 bytes and {END_OF_TEXT}), got {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(
            f"the text only gives {tokenizer.get_vocab_size()} tokens, vocab_size {vocab_size} was asked for"
        )
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: pathlib.Path, max_length: int) -> None:
    """Writes tokenizer.json and tokenizer_config.json as transformers expects them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")


def encode_documents(tokenizer: Tokenizer, documents: Iterable[str]) -> list[np.ndarray]:
    """Every document as int32 ids with ``END_OF_TEXT_ID`` behind it."""
    encodings = tokenizer.encode_batch(list(documents), add_special_tokens=False)
    return [np.array([*encoding.ids, END_OF_TEXT_ID], np.int32) for encoding in encodings]
