"""Per-row reads and writes: each is one row's indexing, lifted over the batch."""

import jax
import jax.numpy as jnp


def span(start: jax.Array, count: int) -> jax.Array:
    """``[B, count]`` int32: for every row ``start[b], start[b] + 1, ...``."""
    return start[:, None] + jnp.arange(count, dtype=jnp.int32)[None]


def at(table: jax.Array, index: jax.Array) -> jax.Array:
    """``table[b, index[b]]`` for every row; an index outside is clamped."""
    return jax.vmap(lambda row, i: row[i])(table, index)


def take(table: jax.Array, index: jax.Array) -> jax.Array:
    """``table[b, index[b, t]]`` for every row and entry; an index outside is clamped."""
    return jax.vmap(lambda row, i: row.at[i].get(mode="clip"))(table, index)


def put(table: jax.Array, index: jax.Array, values: jax.Array) -> jax.Array:
    """``table[b, index[b, t]] = values[b, t]``; an index past the end is dropped."""
    return jax.vmap(lambda row, i, new: row.at[i].set(new, mode="drop"))(table, index, values)
