"""The compiled loop copies no cache: rollback is a length, and every write is in place."""

import re

import jax
import jax.numpy as jnp
import pytest

from sbjax import (
    Autoregressive,
    DecoderModel,
    Engine,
    KeyedNoise,
    Lookahead,
    Sampling,
    SpecBranch,
    SpS,
)
from sbjax.cache import KVCache
from sbjax.engine import create_state
from sbjax.loops.one_program import run
from sbjax.testing import small_llama

VOCAB = 11


def decoder(heads: int) -> DecoderModel:
    return small_llama(2, width=16 * heads, heads=heads, mlp_width=32, vocab_size=VOCAB, max_length=512)


BRANCHES = SpecBranch(2, branches=3, head_start=7)


@pytest.mark.parametrize(
    ("method", "rows"),
    [(Autoregressive(), 3), (SpS(9), 1), (Lookahead(2, 3, 2, 4), 3), (BRANCHES, 1), (BRANCHES, 3)],
    ids=["plain", "three widths", "lookahead", "branches", "branches of three rows"],
)
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
