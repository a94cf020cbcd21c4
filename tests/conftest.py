"""Strict settings for every test: several virtual devices, no silent promotion of dtypes or ranks."""

import importlib.metadata
import json
import os
import signal

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=5"
# Most of the suite's time is compiling, and jaxlib 0.10's older code generator takes half as long. (The smoke
# test of the wheel compiles as users do.) XLA ends the process at a flag it does not know, hence the version.
if importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

import jax
import pytest

# A shell starts background jobs with Ctrl-C ignored; Python would then never raise KeyboardInterrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="module")
def quick_compile():
    """Compiles with few optimisations, in half the time: for engines of tiny models."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def letters_folder(tmp_path_factory):
    """A tokenizer of nine tokens: <s> </s> a b c, space, the two bytes of an e with acute accent, ab.

    Its chat template writes the messages one after the other, with a b behind them for the answer.
    """
    import tokenizers

    folder = tmp_path_factory.mktemp("letters")
    vocabulary = ["<s>", "</s>", "a", "b", "c", "\u0120", "\u00c3", "\u00a9", "ab"]
    model = tokenizers.models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=[("a", "b")])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(vocabulary[:2])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (
        "{% for message in messages %}{{ message['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}b{% endif %}"
    )
    config = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="session")
def letters(letters_folder):
    """The tokenizer of ``letters_folder``."""
    from sbjax import Tokenizer

    return Tokenizer.from_folder(letters_folder)
