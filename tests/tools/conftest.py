"""A pair of tiny random models as Hugging Face folders, with a tokenizer."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools"))

from pair_training.architecture import Architecture
from pair_training.folders import write_folder
from pair_training.vocabulary import train_tokenizer


@pytest.fixture(scope="session")
def tiny_pair(tmp_path_factory) -> pathlib.Path:
    """A folder with ``target`` and ``draft``; 160 positions."""
    folder = tmp_path_factory.mktemp("pair")
    text = (pathlib.Path(__file__).parents[2] / "sbjax" / "generate.py").read_text(encoding="utf-8")
    tokenizer = train_tokenizer([text], 280)
    for name, layers, seed in (("target", 2, 0), ("draft", 1, 1)):
        sizes = Architecture(width=16, layers=layers, heads=2, kv_heads=1, mlp_width=24)
        write_folder(folder / name, sizes.model(280, 160).init(seed), sizes, tokenizer, 160)
    return folder
