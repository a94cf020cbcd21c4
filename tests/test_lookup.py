"""Prompt lookup: the search against plain Python, and the trunks it makes of texts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax import Engine, KeyedNoise, PromptLookup, Sampling, start
from sbjax.lookup import latest_match, looked_up
from sbjax.testing import TableModel

pytestmark = pytest.mark.usefixtures("quick_compile")
TABLE = TableModel(9, max_length=64)


def reference(text: list[int], ngram: int) -> tuple[int, int]:
    """Place and length of the longest ending that stood before, the latest."""
    end = len(text) - 1
    for length in range(ngram, 0, -1):
        places = [
            i for i in range(length - 1, end) if text[i - length + 1 : i + 1] == text[end - length + 1 :]
        ]
        if places and length <= end + 1:
            return places[-1], length
    return -1, 0


@pytest.mark.parametrize("vocab", [1, 2, 5, 40])
def test_the_latest_place_of_the_longest_ending_is_found(vocab):
    rng, rows, slots = np.random.default_rng(vocab), 60, 24
    text = rng.integers(0, vocab, (rows, slots)).astype(np.int32)
    end = rng.integers(0, slots, rows).astype(np.int32)
    for ngram in (1, 3):
        place, matched = latest_match(jnp.asarray(text), jnp.asarray(end), ngram)
        for row in range(rows):
            wanted = reference(text[row, : end[row] + 1].tolist(), ngram)
            assert int(matched[row]) == wanted[1]
            assert wanted[1] == 0 or int(place[row]) == wanted[0]


def trunks(prompts, new_tokens, method) -> list[list[int]]:
    rows = len(prompts)
    engine, noise = Engine(TABLE, None, method, 9), KeyedNoise.create(*[jnp.zeros(rows, jnp.uint32)] * 2)
    sampling = Sampling.create(rows)
    state = start(engine, {"target": TABLE.init(0)}, prompts, new_tokens, sampling=sampling, noise=noise)
    trunk = jax.tree.map(np.asarray, jax.jit(looked_up, static_argnums=0)(engine, state).trunk)
    return [tokens[:n].tolist() for tokens, n in zip(trunk.tokens, trunk.length, strict=True)]


def test_a_trunk_is_what_followed_and_ends_before_the_limit():
    prompts = [
        [1, 2, 3, 4, 5, 6, 7, 1, 2],  # the pair stood at the start
        [5, 2, 7, 1, 2, 8, 8, 5, 2],  # the pair, although 2 alone stood later
        [3, 4, 3, 4, 3],  # the end of the text goes on with its period
        [6, 6],
        [1, 2, 3],  # 3 is new
        [4],
        [1, 2, 3, 1, 2],  # two tokens to go, the last is the target's
        [1, 2, 3, 1, 2],  # one to go
    ]
    found = trunks(prompts, [9] * 6 + [2, 1], PromptLookup(tokens=4, ngram=2))
    assert found == [[3, 4, 5, 6], [7, 1, 2, 8], [4, 3, 4, 3], [6, 6, 6, 6], [], [], [3], []]


@pytest.mark.parametrize("settings", [{"tokens": 0}, {"ngram": 0}, {"tokens": 2.5}, {"ngram": True}])
def test_settings_out_of_range_are_refused(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=f"{name} must be"):
        PromptLookup(**settings)


@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_rule_that_needs_a_drafts_law_is_refused(rule):
    with pytest.raises(ValueError, match=f"PromptLookup has no draft whose law the {rule} rule could test"):
        Engine(TABLE, None, PromptLookup(), 9, rule=rule)
