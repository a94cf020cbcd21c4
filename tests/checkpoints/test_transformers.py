"""Folders of transformers there and back, and what transformers makes of the result."""

import pytest
import torch
import transformers

from sbjax.checkpoints import convert, export

SIZES = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)),
    "qwen2, tied": lambda: transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**SIZES, tie_word_embeddings=True)
    ),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("dtype", ["keep", "float32"])
def test_transformers_loads_the_way_back(make, dtype, tmp_path):
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    make().to(torch.bfloat16).save_pretrained(tmp_path / "source", max_shard_size="4KB")
    before = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "out", dtype=dtype)
    export(tmp_path / "out", tmp_path / "back", max_shard_size="4KB")
    after, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not any(report.values())
    old, new = before.state_dict(), after.state_dict()
    assert old.keys() == new.keys()
    assert all(new[name].dtype == torch.bfloat16 and torch.equal(old[name], new[name]) for name in old)
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(before(tokens).logits, after(tokens).logits)
