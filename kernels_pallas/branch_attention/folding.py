"""Branches as queries: how a kernel without a branch axis serves ``vmap`` over branches.

Axes: ``K`` branches, the others as in ``reference``.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Axes = tuple[int | None, ...]


def folded(call: Callable[..., Any], axes: Axes, *, bare: bool = False) -> Callable[..., Any]:
    """Lifts an attention to arguments of which some have branches in front.

    Args:
      call: takes the arguments of ``reference.attention``.
      axes: 0 for every argument that has ``[K, ...]``, None for the others.
      bare: whether to return what ``call`` returns, without the way back.
    """
    shared = axes[1] is None and axes[2] is None

    def run(*args):
        count = next(jax.tree.leaves(x)[0].shape[0] for x, axis in zip(args, axes, strict=True) if axis == 0)
        kept = args if not shared else (args[0], None, None, *args[3:])
        spread = [
            x
            if axis == 0
            else jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (count, *leaf.shape)), x)
            for x, axis in zip(kept, axes, strict=True)
        ]
        if shared:
            out = call(*_as_queries(spread, args[1], args[2]))
            return out if bare else _branches_of_queries(out, count)
        out = call(*jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), spread))
        return out if bare else out.reshape(count, -1, *out.shape[1:])

    return run


def _as_queries(spread, prefix_keys, prefix_values) -> tuple:
    """All branches of a row side by side; a branch sees its own tokens only."""
    query, _, _, start, end, keys, values, visible = spread
    count, rows, tokens, own = visible.shape
    apart = jnp.eye(count, dtype=bool)[:, None, None, :, None]
    visible = jnp.moveaxis(visible[:, :, :, None] & apart, 0, 1)

    def side_by_side(x):
        return jnp.moveaxis(x, 0, 1).reshape(rows, count * tokens, *x.shape[3:])

    def own_tokens(x):
        return jnp.moveaxis(x, 0, 2).reshape(rows, x.shape[2], count * own, x.shape[4])

    return (
        side_by_side(query),
        prefix_keys,
        prefix_values,
        None if start is None else side_by_side(start),
        side_by_side(end),
        own_tokens(keys),
        own_tokens(values),
        visible.reshape(rows, count * tokens, count * own),
    )


def _branches_of_queries(out: jax.Array, count: int) -> jax.Array:
    """``[B, K * T, N, H]`` back to ``[K, B, T, N, H]``."""
    rows, queries = out.shape[:2]
    return jnp.moveaxis(out.reshape(rows, count, queries // count, *out.shape[2:]), 1, 0)
