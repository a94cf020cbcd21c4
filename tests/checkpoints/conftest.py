"""Small Hugging Face folders, written without torch."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from sbjax.checkpoints import convert
from sbjax.models.families import from_hf_config, weight_table

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 19,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def config():
    """A Llama with an untied head."""
    return dict(CONFIG)


@pytest.fixture
def make_tensors():
    """Random weights of a config: ``make_tensors(config, dtype)`` gives arrays by name."""

    def make(config, dtype=ml_dtypes.bfloat16):
        rng = np.random.default_rng(0)
        table = weight_table(from_hf_config(config))
        return {name: rng.standard_normal(weight.shape).astype(dtype) for name, weight in table.items()}

    return make


@pytest.fixture
def write_folder(tmp_path):
    """Writes a Hugging Face folder: ``write_folder(config, *shards, index=None)`` gives its path."""

    def write(config, *shards, index=None, name="source"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        for number, tensors in enumerate(shards, 1):
            part = f"-{number:05d}-of-{len(shards):05d}" if len(shards) > 1 else ""
            save_file(tensors, folder / f"model{part}.safetensors", metadata={"format": "pt"})
        if index is not None:
            (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        return folder

    return write


@pytest.fixture
def source(config, make_tensors, write_folder):
    """A folder with one file of bfloat16 weights."""
    return write_folder(config, make_tensors(config))


@pytest.fixture(scope="session")
def converted(tmp_path_factory):
    """A converted checkpoint, bfloat16 stored as float32. Not to be changed: copy it."""
    folder = tmp_path_factory.mktemp("session")
    (folder / "source").mkdir()
    (folder / "source" / "config.json").write_text(json.dumps(CONFIG))
    rng = np.random.default_rng(0)
    table = weight_table(from_hf_config(CONFIG))
    tensors = {
        name: rng.standard_normal(weight.shape).astype(ml_dtypes.bfloat16) for name, weight in table.items()
    }
    save_file(tensors, folder / "source" / "model.safetensors")
    return convert(folder / "source", folder / "converted", dtype="float32")
