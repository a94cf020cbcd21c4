import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from sbjax.checkpoints import CheckpointError, load
from sbjax.checkpoints.conversion import open_hugging_face
from sbjax.models.families import from_hf_config, weight_table

HEAD, EMBEDDING, NORM = "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"


def take(folder):
    config = json.loads((folder / "config.json").read_text())
    return open_hugging_face(folder, weight_table(from_hf_config(config)))


def test_every_weight_is_found_in_its_file(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    names = sorted(tensors)
    parts = names[:5], names[5:]
    inventory = take(write_folder(config, *({n: tensors[n] for n in part} for part in parts)))
    assert [sorted(found) for found in inventory.files.values()] == [sorted(part) for part in parts]
    assert (inventory.redundant, inventory.ignored) == ({}, ())


def test_missing_weights_are_named(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    del tensors[NORM], tensors["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(
        CheckpointError, match=r"missing.*layers\.1\.mlp\.up_proj\.weight, model\.norm\.weight"
    ):
        take(write_folder(config, tensors))


def test_unknown_weights_are_named(config, make_tensors, write_folder):
    tensors = make_tensors(config) | {"model.layers.2.mlp.up_proj.weight": np.ones((2, 2), np.float32)}
    with pytest.raises(CheckpointError, match=r"does not have, in model\.safetensors: model\.layers\.2\.mlp"):
        take(write_folder(config, tensors))


def test_misshaped_weights_are_named(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    tensors[NORM] = np.ones(9, np.float32)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight in .* has shape \(9,\).*\(8,\)"):
        take(write_folder(config, tensors))


def test_transposed_weights_are_misshaped(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[name] = np.ascontiguousarray(tensors[name].T)
    with pytest.raises(CheckpointError, match=r"down_proj.* has shape \(12, 8\)"):
        take(write_folder(config, tensors))


def test_weight_in_two_files_is_refused(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight is in two files, .*00001-of.*00002-of"):
        take(write_folder(config, tensors, {NORM: tensors[NORM]}))


def test_index_that_names_the_wrong_file_is_refused(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    rest = {name: a for name, a in tensors.items() if name != NORM}
    index = dict.fromkeys(tensors, "model-00001-of-00002.safetensors") | {
        HEAD: "model-00002-of-00002.safetensors"
    }
    with pytest.raises(CheckpointError, match=r"index says that lm_head\.weight is in .*00002-of-00002"):
        take(write_folder(config, rest, {NORM: tensors[NORM]}, index=index))


@pytest.mark.parametrize(
    "name, dtype",
    [
        ("model.layers.0.mlp.up_proj.qweight", np.int32),
        ("model.layers.0.mlp.up_proj.weight_scale_inv", np.float32),
        ("model.layers.0.mlp.up_proj.weight.absmax", np.float32),
        ("model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4", np.uint8),
    ],
)
def test_quantised_weights_are_refused_by_name(config, make_tensors, write_folder, name, dtype):
    tensors = make_tensors(config)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    tensors[name] = np.ones((2, 2), dtype)
    with pytest.raises(CheckpointError, match=f"{name}.*quantised.*original precision"):
        take(write_folder(config, tensors))


def test_float8_weights_are_refused_by_name(config, make_tensors, write_folder):
    folder = write_folder(config, make_tensors(config))
    header = {NORM: {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}
    raw = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(8))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight \(F8_E4M3\).*quantised"):
        take(folder)


def test_legacy_rotary_buffers_are_ignored_and_reported(config, make_tensors, write_folder):
    extra = {"model.layers.1.self_attn.rotary_emb.inv_freq": np.ones(1, np.float32)}
    inventory = take(write_folder(config, make_tensors(config) | extra))
    assert inventory.ignored == tuple(extra)


def test_redundant_equal_head_is_dropped_and_reported(config, make_tensors, write_folder):
    config["tie_word_embeddings"] = True
    tensors = make_tensors(config)
    tensors[HEAD] = tensors[EMBEDDING].copy()
    inventory = take(write_folder(config, {HEAD: tensors.pop(HEAD)}, tensors))
    assert inventory.redundant == {HEAD: EMBEDDING}
    assert HEAD not in inventory.infos


def test_redundant_head_that_differs_in_its_last_value_is_refused(config, make_tensors, write_folder):
    config["tie_word_embeddings"] = True
    tensors = make_tensors(config)
    tensors[HEAD] = tensors[EMBEDDING].copy()
    tensors[HEAD][-1, -1] += 1
    with pytest.raises(CheckpointError, match=r"lm_head\.weight.* differs from .*embed_tokens.*tie_word"):
        take(write_folder(config, tensors))


def test_untied_config_without_a_head_is_refused(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    del tensors[HEAD]
    with pytest.raises(CheckpointError, match=r"missing lm_head\.weight.*set tie_word_embeddings to true"):
        take(write_folder(config, tensors))


def test_no_weights_at_all(config, write_folder):
    with pytest.raises(CheckpointError, match=r"has no model\*\.safetensors or pytorch_model\*\.bin"):
        take(write_folder(config))


@pytest.mark.parametrize(
    "name, reason",
    [("model.gguf", "GGUF"), ("adapter_model.safetensors", "adapter"), ("tf_model.h5", "TensorFlow")],
)
def test_other_formats_are_named(config, write_folder, name, reason):
    folder = write_folder(config)
    save_file({"w": np.ones(2, np.float32)}, folder / name)
    with pytest.raises(CheckpointError, match=f"{name}.*{reason}|{name}: .*{reason}"):
        take(folder)


def test_parts_that_are_not_there_are_named(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    folder = write_folder(config, tensors, {"x": tensors[NORM]})
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"missing files of weights: model-00002-of-00002"):
        take(folder)


def test_file_that_the_index_names_but_is_not_there(config, make_tensors, write_folder):
    tensors = make_tensors(config)
    folder = write_folder(config, tensors, {}, index={NORM: "model-00003-of-00003.safetensors"})
    with pytest.raises(CheckpointError, match=r"model-00003-of-00003\.safetensors: no such file"):
        take(folder)


@pytest.mark.parametrize("index", [{}, {NORM: "../elsewhere.safetensors"}, {NORM: 3}])
def test_unusable_index_is_refused(config, write_folder, index):
    with pytest.raises(CheckpointError, match=r"index\.json.*(no weight_map|not the name of a file)"):
        take(write_folder(config, index=index))


@pytest.mark.parametrize("content", ["{", "[]", "\xff"])
def test_damaged_config_is_named(config, make_tensors, write_folder, content):
    folder = write_folder(config, make_tensors(config))
    (folder / "config.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(folder)


def test_folder_that_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match=r"not a checkpoint, it has no config\.json"):
        load(tmp_path)
