"""The whole engine on the TPU kernels, interpreted: the text is that of the reference."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

import sbjax
from kernels_pallas import branch_attention, dispatch, tuning
from sbjax.testing import small_llama

pytestmark = pytest.mark.usefixtures("quick_compile")

TARGET = small_llama(1, width=32, heads=4, kv_heads=2)
DRAFT = small_llama(1, width=16, heads=2, kv_heads=1)
PROMPTS = [[3, 1, 4, 1, 5], [2, 7], [1]]


@pytest.fixture
def kernels(monkeypatch):
    """Lets the kernels run on this CPU, interpreted; counts how often each is traced."""
    plain, traced = pl.pallas_call, []

    def interpreted(*args, **options):
        traced.append(options["name"])
        return plain(*args, **{**options, "interpret": True})

    def forget():
        branch_attention._attention.cache_clear()
        jax.clear_caches()

    monkeypatch.setattr(pl, "pallas_call", interpreted)
    monkeypatch.setitem(dispatch.PLATFORMS, "tpu", "cpu")
    forget()
    with tuning.for_device("TPU v5 lite"):
        yield traced
    forget()


def tokens(method, temperature):
    params = {"target": TARGET.init(0), "draft": DRAFT.init(1)}
    engine = sbjax.Engine(TARGET, DRAFT if method.draft_length else None, method, 61)
    rows = jnp.arange(3, dtype=jnp.uint32)
    state = sbjax.start(
        engine,
        params,
        PROMPTS,
        [12, 9, 14],
        sampling=sbjax.Sampling.create(3, temperature, [0, 9, 0], [1.0, 1.0, 0.8]),
        noise=sbjax.KeyedNoise.create(jnp.full(3, 7, jnp.uint32), rows),
        stop_ids=[60],
    )
    state = sbjax.run(engine, params, state, jnp.int32(40))
    return [text[:length].tolist() for text, length in zip(state.text, state.length, strict=True)]


def test_specbranch_gives_the_text_of_plain_decoding_on_the_reference(request):
    wanted = tokens(sbjax.Autoregressive(), 0.9)
    traced = request.getfixturevalue("kernels")
    assert tokens(sbjax.SpecBranch(2, branches=3, head_start=2), 0.9) == wanted
    assert {"branch_attention", "adopt", "verify"} <= set(traced)
