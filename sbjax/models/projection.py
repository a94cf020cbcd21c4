"""The product of activations with a weight matrix, for few rows at a time.

Decoding multiplies 1 to 64 rows with matrices that are far larger than any cache of the processor, so
a product should cost one reading of the matrix. XLA's CPU backend comes near that only if the
activations lie as columns: eight rows cost 1.4 to 1.6 times one row that way, and 2.3 to 3.7 times as
rows. On accelerators the compiler chooses layouts itself and gets the plain product.
"""

import math

import jax
import jax.numpy as jnp

_NARROW = 64
"""Up to this many rows columns are the faster layout on CPU."""


def project(x: jax.Array, weight: jax.Array) -> jax.Array:
    """``x [..., in] @ weight [out, in].T`` in float32, without a transposed copy of the weight.

    Rows are independent of each other. Under ``vmap`` over ``x`` the mapped axis becomes rows of one
    product, so that branches read the matrix once.
    """
    rows = math.prod(x.shape[:-1])
    if not 0 < rows <= _NARROW:
        return _plain(x, weight)
    return _narrow(x.reshape(rows, x.shape[-1]), weight).reshape(*x.shape[:-1], weight.shape[0])


def _plain(x: jax.Array, weight: jax.Array) -> jax.Array:
    contract_last = (((x.ndim - 1,), (1,)), ((), ()))
    return jax.lax.dot_general(x, weight, contract_last, preferred_element_type=jnp.float32)


@jax.custom_jvp
def _narrow(x: jax.Array, weight: jax.Array) -> jax.Array:
    """``[rows, in]`` to ``[rows, out]``; derivatives are those of the plain product."""
    return _foldable(x, weight)


@_narrow.defjvp
def _derivative(primals, tangents):
    (x, weight), (dx, dweight) = primals, tangents
    return _narrow(x, weight), _plain(dx, weight) + _plain(x, dweight)


@jax.custom_batching.custom_vmap
def _foldable(x: jax.Array, weight: jax.Array) -> jax.Array:
    if x.shape[0] == 1:
        return _plain(x, weight)
    return jax.lax.platform_dependent(x, weight, cpu=_columns, default=_plain)


@_foldable.def_vmap
def _fold(size: int, batched: list[bool], x: jax.Array, weight: jax.Array):
    """The mapped axis as more rows; a mapped weight is as many products."""
    if batched[1]:
        return jax.vmap(_plain, (0 if batched[0] else None, 0))(x, weight), True
    return project(x, weight), True


def _columns(x: jax.Array, weight: jax.Array) -> jax.Array:
    """``(weight @ x.T).T`` with both transposes carried out: the barriers keep XLA from turning the
    product around again. The kernels work on 2, 3, 4 or a multiple of 8 columns.
    """
    rows = x.shape[0]
    padded = x if rows <= 4 else jnp.pad(x, ((0, -rows % 8), (0, 0)))
    columns = jax.lax.optimization_barrier(padded.T)
    product = jax.lax.dot_general(
        weight, columns, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32
    )
    return jax.lax.optimization_barrier(product).T[:rows]
