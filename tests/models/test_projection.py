"""The narrow product: equal to the plain one, in any layout, under vmap and under derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sbjax.models.projection import project


def _weight(out=12, into=7):
    return jax.random.normal(jax.random.key(0), (out, into))


@pytest.mark.parametrize("shape", [(7,), (1, 1, 7), (3, 7), (2, 3, 7), (9, 7), (70, 7), (0, 7)])
def test_the_product_is_the_plain_one(shape):
    x = jax.random.normal(jax.random.key(1), shape)
    np.testing.assert_allclose(jax.jit(project)(x, _weight()), x @ _weight().T, atol=1e-5)


def test_a_mapped_axis_becomes_rows_of_one_product():
    x, weight = jax.random.normal(jax.random.key(1), (4, 2, 1, 7)), _weight()
    mapped = jax.jit(jax.vmap(lambda x: project(x, weight)))
    np.testing.assert_allclose(mapped(x), x @ weight.T, atol=1e-5)
    assert mapped.lower(x).compile().as_text().count(" dot(") == 1


def test_mapped_weights_are_products_of_their_own():
    x, weights = jax.random.normal(jax.random.key(1), (4, 3, 7)), jnp.stack([_weight()] * 4)
    np.testing.assert_allclose(jax.vmap(project)(x, weights), x @ _weight().T, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_derivatives_are_those_of_the_plain_product(rows):
    x, weight = jax.random.normal(jax.random.key(1), (rows, 7)), _weight()

    def loss(product):
        return jax.grad(lambda x, w: jnp.sum(jnp.sin(product(x, w))), (0, 1))(x, weight)

    for got, wanted in zip(loss(project), loss(lambda x, w: x @ w.T), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_the_accelerators_get_the_plain_product():
    x = jax.ShapeDtypeStruct((8, 7), jnp.float32)
    weight = jax.ShapeDtypeStruct((12, 7), jnp.float32)
    for platform, barriers in (("tpu", 0), ("cuda", 0), ("cpu", 2)):
        text = jax.jit(project).trace(x, weight).lower(lowering_platforms=(platform,)).as_text()
        assert text.count("optimization_barrier") == barriers, platform
