import jax
import pytest
from jax.sharding import AxisType, PartitionSpec

from sbjax.mesh import MESH_AXIS, make_mesh, shardings
from sbjax.models.decoder import DecoderModel
from sbjax.models.families import from_hf_config, weight_table

CONFIG = {
    "model_type": "qwen2",
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def specs(mesh, **changes):
    """Partition of every weight by its Hugging Face name."""
    config = from_hf_config(CONFIG | changes)
    tree = shardings(DecoderModel(config), mesh)
    found = {}
    for name, weight in weight_table(config).items():
        node = tree
        for key in weight.path:
            node = node[key]
        assert node.mesh == mesh
        found[name.removeprefix("model.layers.0.")] = node.spec
    return found


def test_mesh_has_both_axes_and_explicit_types():
    mesh = make_mesh(2, 2, jax.devices()[:4])
    assert dict(mesh.shape) == {"data": 2, "model": 2}
    assert mesh.axis_types == (AxisType.Auto, AxisType.Auto)
    assert make_mesh(1, 2, jax.devices()[2:4]).devices.flat[0] == jax.devices()[2]


def test_mesh_of_the_wrong_size_is_refused():
    with pytest.raises(ValueError, match="data=3 and model=2 does not fit 5 devices"):
        make_mesh(3, 2)


def test_heads_mlp_and_vocabulary_are_spread():
    found = specs(make_mesh(2, 2, jax.devices()[:4]))
    rows, columns, whole = PartitionSpec("model", None), PartitionSpec(None, "model"), PartitionSpec(None)
    assert found["model.embed_tokens.weight"] == found["lm_head.weight"] == rows
    assert found["self_attn.q_proj.weight"] == found["self_attn.k_proj.weight"] == rows
    assert found["self_attn.q_proj.bias"] == PartitionSpec("model")
    assert found["self_attn.o_proj.weight"] == found["mlp.down_proj.weight"] == columns
    assert found["mlp.up_proj.weight"] == rows
    assert found["input_layernorm.weight"] == whole


def test_what_does_not_divide_is_whole():
    found = specs(make_mesh(1, 4, jax.devices()[:4]), vocab_size=21, intermediate_size=26)
    whole = PartitionSpec(None, None)
    assert found["model.embed_tokens.weight"] == found["mlp.up_proj.weight"] == whole
    assert found["self_attn.q_proj.weight"] == PartitionSpec("model", None)
    # 2 heads of width 4 are 8 rows, which 4 devices could share, but only by cutting heads.
    assert found["self_attn.k_proj.weight"] == whole
    assert found["self_attn.k_proj.bias"] == PartitionSpec(None)


def test_other_axes_are_refused():
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
    with pytest.raises(ValueError, match="must have the axes 'data' and 'model'"):
        specs(mesh)


def test_every_logical_axis_is_in_the_table():
    names = {axis for weight in weight_table(from_hf_config(CONFIG)).values() for axis in weight.axes}
    assert names <= set(MESH_AXIS)
