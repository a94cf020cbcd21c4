"""The pool against a list that does the same in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax.ngram_pool import NgramPool

ROWS, PLACES, NGRAM, COUNT = 3, 8, 3, 4


class Reference:
    """N-grams of one row, the one seen last at the end."""

    def __init__(self):
        self.ngrams = []

    def add(self, ngrams):
        new = list(dict.fromkeys(reversed([tuple(ngram) for ngram in ngrams])))[::-1]
        self.ngrams = [ngram for ngram in self.ngrams if ngram not in new]
        self.ngrams = (self.ngrams + new)[-PLACES:]

    def find(self, first, count):
        return [list(ngram[1:]) for ngram in reversed(self.ngrams) if ngram[0] == first][:count]


@pytest.mark.parametrize("vocab", [2, 3, 50])  # n-grams come back often, now and then, hardly ever
def test_a_pool_keeps_what_was_seen_last_once(vocab):
    rng = np.random.default_rng(vocab)
    pool, references = NgramPool.create(ROWS, PLACES, NGRAM), [Reference() for _ in range(ROWS)]
    add, shapes = jax.jit(NgramPool.add), jax.tree.map(jnp.shape, pool)
    for _ in range(30):
        ngrams = rng.integers(0, vocab, (ROWS, COUNT, NGRAM)).astype(np.int32)
        pool = add(pool, jnp.asarray(ngrams))
        firsts = rng.integers(0, vocab, ROWS).astype(np.int32)
        guesses, found = pool.find(jnp.asarray(firsts), 5)
        for row, reference in enumerate(references):
            reference.add(ngrams[row].tolist())
            kept = np.asarray(pool.tokens)[row][np.asarray(pool.seen)[row] > 0].tolist()
            assert sorted(map(tuple, kept)) == sorted(reference.ngrams)
            assert guesses[row, : found[row]].tolist() == reference.find(firsts[row], 5)
    assert jax.tree.map(jnp.shape, pool) == shapes and add._cache_size() == 1


def test_nothing_is_found_in_an_empty_pool():
    guesses, found = NgramPool.create(2, PLACES, NGRAM).find(jnp.zeros(2, jnp.int32), 3)
    assert found.tolist() == [0, 0] and guesses.shape == (2, 3, NGRAM - 1)
