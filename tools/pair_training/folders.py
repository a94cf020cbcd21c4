"""Writes a trained model as a Hugging Face folder."""

import json
import pathlib

import ml_dtypes
import numpy as np
from safetensors.numpy import save
from tokenizers import Tokenizer

from pair_training.architecture import Architecture
from pair_training.vocabulary import END_OF_TEXT_ID, save_tokenizer
from sbjax.checkpoints.atomic_folder import atomic_folder
from sbjax.checkpoints.tree import leaf_at
from sbjax.language_model import Params
from sbjax.models.families import from_hf_config
from sbjax.models.weight_names import weight_table

DTYPE = "bfloat16"


def write_folder(
    out: pathlib.Path, params: Params, architecture: Architecture, tokenizer: Tokenizer, max_length: int
) -> None:
    """Writes config.json, generation_config.json, the tokenizer and the weights in bfloat16.

    Args:
      out: the folder; it appears when it is complete, and replaces a model that is there.
      params: float32 parameters of ``architecture.model``.
      architecture: its sizes.
      tokenizer: the pair's.
      max_length: positions.
    """
    config = architecture.hf_config(tokenizer.get_vocab_size(), max_length, DTYPE)
    table = weight_table(from_hf_config(config))
    weights = {
        name: np.asarray(leaf_at(params, weight.path)).astype(ml_dtypes.bfloat16)
        for name, weight in table.items()
    }
    generation = {
        "bos_token_id": END_OF_TEXT_ID,
        "eos_token_id": END_OF_TEXT_ID,
        "pad_token_id": END_OF_TEXT_ID,
        "do_sample": False,
    }
    size = sum(array.nbytes for array in weights.values())
    with atomic_folder(out, overwrite=True, needed=size) as work:
        # Not save_file, which makes files that only their owner can read.
        (work / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
        _write_json(work / "config.json", config)
        _write_json(work / "generation_config.json", generation)
        save_tokenizer(tokenizer, work, max_length)


def folder_bytes(folder: pathlib.Path) -> int:
    """Size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _write_json(path: pathlib.Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
