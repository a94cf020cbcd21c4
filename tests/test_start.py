"""Shapes of a run are bucketed, and what does not fit is refused before anything is computed."""

import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import Engine, KeyedNoise, Sampling, SpS, start
from sbjax.start import bucket
from sbjax.testing import TableModel

MODEL = TableModel(5, max_length=64)


def begin(prompts, new_tokens, **options):
    engine = Engine(MODEL, MODEL, SpS(3), 5)
    params = {"target": MODEL.init(0), "draft": MODEL.init(1)}
    rows = len(prompts) * options.get("samples", 1)
    noise = KeyedNoise.create(jnp.zeros(rows, jnp.uint32), jnp.arange(rows, dtype=jnp.uint32))
    return start(engine, params, prompts, new_tokens, sampling=Sampling.create(rows), noise=noise, **options)


def test_buckets_hold_what_they_are_for_and_waste_little():
    sizes = np.arange(1, 40000)
    buckets = np.array([bucket(int(size)) for size in sizes])
    assert (buckets >= sizes).all() and (np.diff(buckets) >= 0).all()
    assert (buckets - sizes < np.maximum(128, sizes / 4)).all()
    assert (buckets % 128 == 0).all() and len(np.unique(buckets)) < 40
    assert [bucket(size) for size in (1, 128, 129, 1024, 1025)] == [128, 128, 256, 1024, 1280]


def test_a_run_starts_with_the_last_token_of_every_prompt_pending():
    state = begin([[1, 2, 3], [4]], [5, 6], stop_ids=[2], samples=2)
    assert state.text.shape == (4, 128)
    assert state.text[:, :3].tolist() == [[1, 2, 3], [1, 2, 3], [4, 0, 0], [4, 0, 0]]
    assert state.length.tolist() == [3, 3, 1, 1] and state.limit.tolist() == [8, 8, 7, 7]
    assert state.target.length.tolist() == state.draft.length.tolist() == [2, 2, 0, 0]
    assert state.stop_ids[:, 0].tolist() == [2] * 4 and (np.asarray(state.stop_ids)[:, 1:] == -1).all()


def test_more_slots_than_given_are_refused():
    with pytest.raises(ValueError, match="the request needs 14 cache slots, 13 were given"):
        begin([[1, 2], [3]], [8, 4], slots=13)
    assert begin([[1, 2], [3]], [8, 4], slots=14).text.shape == (2, 14)


def test_a_request_past_the_context_is_refused_by_its_number():
    with pytest.raises(
        ValueError, match="prompt 1 has 60 tokens and asks for 5 more, but the target's context is 64"
    ):
        begin([[1], [1] * 60], [8, 5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "Match"}, "rule must be one of match, token, block, got 'Match'"),
        ({"draft": None}, "SpS needs a draft model"),
        ({"vocab_size": 6}, "the target has 5 logits for a vocabulary of 6"),
        ({"draft": TableModel(4), "vocab_size": 5}, "the draft has 4 logits for a vocabulary of 5"),
    ],
)
def test_an_engine_whose_parts_do_not_fit_is_refused(options, message):
    parts = {"target": MODEL, "draft": MODEL, "method": SpS(3), "vocab_size": 5, **options}
    with pytest.raises(ValueError, match=message):
        Engine(**parts)


@pytest.mark.parametrize("length", [0, -1, 2.0, True, "3", None])
def test_a_draft_length_is_a_positive_integer(length):
    with pytest.raises(ValueError, match="draft_length must be"):
        SpS(length)
