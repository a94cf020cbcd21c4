"""After warm-up nothing compiles again, and the compiled loop copies no cache."""

import re

import jax
import jax.numpy as jnp
import pytest

from sbjax import Autoregressive, DecoderModel, Engine, KeyedNoise, Model, Sampling, SpS, from_hf_config
from sbjax import generate as front_door
from sbjax.cache import KVCache
from sbjax.engine import create_state
from sbjax.loops.one_program import run
from sbjax.prefill import prefill
from sbjax.testing import TableModel

VOCAB = 11
TABLE = TableModel(VOCAB, max_length=256)


@pytest.fixture(scope="module")
def pair() -> tuple[Model, Model]:
    return Model(TABLE, TABLE.init(0)), Model(TABLE, TABLE.init(1))


def compilations() -> tuple[int, int]:
    return run._cache_size(), prefill._cache_size()


@pytest.mark.parametrize("method", [Autoregressive(), SpS(3)], ids=["plain", "sps"])
def test_nothing_compiles_after_warm_up(pair, method, quick_compile):
    target, draft = pair

    def request(prompts, **settings):
        settings = {"max_new_tokens": 9, "temperature": 0.0, **settings}
        return front_door(target, prompts, draft=draft, method=method, **settings)

    request([[1, 2], [3]])
    warm = compilations()
    request([[4] * 20, [5] * 33])  # other lengths within the bucket, around a prefill chunk
    request([[1], [2]], max_new_tokens=40)
    request([[1, 2], [3]], temperature=0.8, top_k=3, top_p=0.9, seed=5)
    request([[1, 2], [3]], temperature=[0.0, 1.0], top_k=[0, 2])
    request([[1, 2], [3]], eos_token_id=[3, 4])
    request([[6, 7], [8]], row_ids=[9, 4])
    assert compilations() == warm
    request([[1, 2], [3], [4]])  # another batch size is another program: the count can change
    assert compilations() != warm


def test_bound_parameters_compile_the_loop_once(pair, quick_compile):
    target, draft = pair
    device = jax.devices()[0]
    bound = [Model(TABLE, jax.device_put(model.params, device)) for model in (target, draft)]
    before = run._cache_size()
    front_door(bound[0], [1, 2], draft=bound[1], method=SpS(2), max_new_tokens=60, temperature=1.0)
    assert run._cache_size() == before + 1


def decoder(heads: int) -> DecoderModel:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 16 * heads,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": 2,
        "vocab_size": VOCAB,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    return DecoderModel(from_hf_config(config))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("method", [Autoregressive(), SpS(3)], ids=["plain", "sps"])
def test_the_loop_copies_no_cache(method, rows):
    target, draft, slots = decoder(4), decoder(2), 96
    engine = Engine(target, draft, method, VOCAB)

    def state():
        zeros = jnp.zeros(rows, jnp.uint32)
        caches = [KVCache.create(model.cache_spec, rows, slots) for model in (target, draft)]
        lengths = jnp.ones(rows, jnp.int32)
        text, stops = jnp.zeros((rows, slots), jnp.int32), jnp.zeros((rows, 8), jnp.int32)
        noise, sampling = KeyedNoise.create(zeros, zeros), Sampling.create(rows)
        return create_state(
            engine,
            text,
            lengths,
            lengths + 9,
            stops,
            sampling,
            noise,
            caches[0],
            caches[1] if method.draft_length else None,
        )

    params = {"target": target.abstract(), "draft": draft.abstract()}
    rounds = jax.ShapeDtypeStruct((), jnp.int32)
    program = run.lower(engine, params, jax.eval_shape(state), rounds).compile().as_text()
    buffer = rf"f32\[{rows},2,{slots},16\]"
    assert re.search(buffer, program)
    assert not re.findall(rf"= {buffer}\S* (?:copy|transpose)\(.*", program)
