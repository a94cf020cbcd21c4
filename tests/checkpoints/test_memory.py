"""A conversion never holds the model, measured in a process of its own (from Linux's /proc)."""

import json
import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from sbjax.models.families import from_hf_config, weight_table

MIB = 1 << 20
SHARD = 8 * MIB

# The first conversion warms up thread pools and allocators; then the mark of the peak is reset.
MEASURE = """
import re, sys
from sbjax.checkpoints import convert

def status(key):
    with open("/proc/self/status") as file:
        return int(re.search(key + r":\\s+(\\d+)", file.read())[1]) * 1024

warm, source, out, dtype = sys.argv[1:]
convert(warm, out + "-warm", dtype=dtype)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = status("VmRSS")
convert(source, out, dtype=dtype)
print(status("VmHWM") - before)
"""


def write_model(folder, config, layers):
    """Writes bfloat16 weights in shards of at most ``SHARD`` bytes; returns their bytes and the largest."""
    folder.mkdir()
    config = config | {"num_hidden_layers": layers, "hidden_size": 512, "intermediate_size": 2048}
    config |= {"vocab_size": 3072, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    shards, sizes = [{}], []
    for name, weight in weight_table(from_hf_config(config)).items():
        array = np.ones(weight.shape, ml_dtypes.bfloat16)
        if sum(other.nbytes for other in shards[-1].values()) + array.nbytes > SHARD:
            shards.append({})
        shards[-1][name] = array
        sizes.append(array.nbytes)
    for number, tensors in enumerate(shards, 1):
        save_file(tensors, folder / f"model-{number:05d}-of-{len(shards):05d}.safetensors")
    return sum(sizes), max(sizes)


def test_peak_is_below_three_shards_and_the_largest_parameter(config, tmp_path):
    write_model(tmp_path / "warm", config, 1)
    total, largest = write_model(tmp_path / "source", config, 13)
    limit = 3 * SHARD + 2 * largest  # stored as float32, the largest parameter is twice as large
    assert total > 3 * limit
    folders = [str(tmp_path / name) for name in ("warm", "source", "out")]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(pathlib.Path(__file__).parents[2])}
    environment.pop("XLA_FLAGS", None)
    command = [sys.executable, "-c", MEASURE, *folders, "float32"]
    run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    growth = int(run.stdout)
    assert MIB < growth < limit, f"{growth / MIB:.1f} MiB of at most {limit / MIB:.1f}"
