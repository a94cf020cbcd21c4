"""After a warm-up nothing is compiled or traced again for other requests of the same shape."""

import collections
import dataclasses

import jax
import numpy as np
import pytest

from sbjax import ApplyModel, Autoregressive, Model, SpS, generate
from sbjax.testing import TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
V = 9
TABLE = TableModel(V, max_length=256)
EVENTS = collections.Counter()


def count(event: str, _: float, **__) -> None:
    EVENTS[event.rsplit("/", 1)[-1]] += 1


@pytest.fixture(scope="module", autouse=True)
def counting():
    """Counts every compilation and every trace of the process."""
    jax.monitoring.register_event_duration_secs_listener(count)


@pytest.fixture(scope="module")
def calls():
    """How often the model's own functions were traced."""
    return collections.Counter()


@pytest.fixture(scope="module")
def pair(letters, calls):
    def forward(params, tokens, positions, cache, mask):
        calls["forward"] += 1
        hidden, _, cache = TABLE.forward(params, tokens, positions, cache, mask)
        return hidden, cache

    def logits(params, hidden):
        calls["logits"] += 1
        return TABLE.logits(params, hidden)

    model = ApplyModel(forward, logits, TABLE.cache_spec, V, TABLE.max_length)
    return Model(model, TABLE.init(0, 2.0), letters), Model(model, TABLE.init(1, 2.0), letters)


RNG = np.random.default_rng(0)


def prompts(*lengths: int) -> list[list[int]]:
    return [RNG.integers(0, V, length).tolist() for length in lengths]


REQUESTS = {
    "other prompt lengths": {"prompts": prompts(1, 100)},
    "prompts around a prefill chunk": {"prompts": prompts(32, 33)},
    "prompts of one token": {"prompts": prompts(1, 1)},
    "texts": {"prompts": ["cab", "c a b c"]},
    "one prompt in two samples": {"prompts": prompts(7), "samples": 2},
    "other limits": {"max_new_tokens": 3},
    "sampling": {"temperature": 0.8},
    "sampling by row": {"temperature": [0.0, 1.3], "top_k": [0, 3], "top_p": [0.9, 1.0]},
    "numpy settings": {"temperature": np.float32(0.3), "top_k": np.int64(2)},
    "other stop tokens": {"eos_token_id": [1, 2, 3]},
    "stop strings": {"stop_strings": ["abc", "cc"]},
    "another seed": {"seed": 2**32 - 1},
    "other rows": {"row_ids": [5, 9]},
    "streaming": {"on_text": lambda row, text: None},
}


@pytest.mark.parametrize("method", [Autoregressive(), SpS(3)])
def test_requests_of_one_shape_are_compiled_once(pair, calls, method):
    target, draft = pair

    def ask(request: dict) -> None:
        generate(
            target, draft=draft, method=method, **{"prompts": prompts(5, 9), "max_new_tokens": 20, **request}
        )

    ask({})
    ask({"prompts": prompts(7), "samples": 2})  # copies the caches of one prompt, another shape
    assert EVENTS["backend_compile_duration"] > 0 and calls["forward"] > 0
    before, traced, found = EVENTS.copy(), dict(calls), {}
    for name, request in REQUESTS.items():
        ask(request)
        found[name], before = EVENTS - before, EVENTS.copy()
    assert not any(found.values()), found
    assert dict(calls) == traced


def test_what_changes_the_shape_or_the_program_is_seen_by_the_counters(pair, calls):
    target = pair[0]
    before, traced = EVENTS["backend_compile_duration"], calls["forward"]
    generate(target, prompts(5, 9, 2), max_new_tokens=20)
    assert EVENTS["backend_compile_duration"] > before and calls["forward"] > traced


def test_equal_models_share_their_program(pair):
    target, draft = pair
    generate(target, prompts(5, 9), max_new_tokens=20)
    before = EVENTS.copy()
    again = Model(dataclasses.replace(target.model), draft.params, target.tokenizer)
    generate(again, prompts(5, 9), max_new_tokens=20)
    assert before == EVENTS
