"""What the TPU kernel does at one step of its grid: see ``mosaic_tpu``.

Axes: ``R`` queries that share a key/value head, the others as in ``reference``.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl


def kernel(
    reach,
    query,
    prefix_keys,
    prefix_values,
    keys,
    values,
    bounds,
    mask,
    out,
    top,
    total,
    mixed,
    *,
    step: int,
    last: bool,
    **how,
):
    """One block of the prefix; the last one adds the own tokens and finishes."""
    row, i = pl.program_id(0), pl.program_id(2)

    @pl.when(i == 0)
    def _start():
        top[...] = jnp.full_like(top, -jnp.inf)
        total[...] = jnp.zeros_like(total)
        mixed[...] = jnp.zeros_like(mixed)

    first, past = touched(reach, row, step)

    @pl.when((i >= first) & (i < past))
    def _prefix():
        shape = (bounds.shape[1], step)
        slot = i * step + lax.broadcasted_iota(jnp.int32, shape, 1)
        seen = (slot >= bounds[0, :, 0:1]) & (slot < bounds[0, :, 1:2])
        # What lies before and behind may be anything, and zero times NaN is not zero.
        place = i * step + lax.broadcasted_iota(jnp.int32, (1, step) if last else (step, 1), int(last))
        live = (place >= reach[0, row]) & (place < reach[1, row])
        values = prefix_values[0, 0]
        values = jnp.where(live, values, jnp.zeros_like(values))
        _mix(query[0, 0], prefix_keys[0, 0], values, seen, top, total, mixed, last, **how)

    @pl.when(i == pl.num_programs(2) - 1)
    def _own():
        _mix(query[0, 0], keys[0, 0], values[0, 0], mask[0] != 0, top, total, mixed, False, **how)
        out[0, 0] = (mixed[...] / total[:, 0:1]).astype(out.dtype)


def touched(reach, row, step: int) -> tuple[jax.Array, jax.Array]:
    """The first block that a row sees, and one past the last."""
    return lax.div(reach[0, row], jnp.int32(step)), lax.div(reach[1, row] + (step - 1), jnp.int32(step))


def _mix(query, keys, values, seen, top, total, mixed, last: bool, *, scale: float, softcap: float | None):
    """Adds keys and values ``[n, H]``, if ``last`` ``[H, n]``, of which the queries see ``seen [R, n]``."""
    scores = _dot(query, keys, 0 if last else 1) * jnp.float32(scale)
    if softcap is not None:
        scores = jnp.tanh(scores / softcap) * softcap
    scores = jnp.where(seen, scores, -jnp.inf)
    old = top[:, 0:1]
    new = jnp.maximum(old, scores.max(-1, keepdims=True))
    # A query that has seen nothing yet has no maximum to subtract.
    base = jnp.where(new > -jnp.inf, new, jnp.float32(0))
    weights, decay = jnp.exp(scores - base), jnp.exp(old - base)
    top[...] = jnp.broadcast_to(new, top.shape)
    total[...] = total[...] * decay + weights.sum(-1, keepdims=True)
    mixed[...] = mixed[...] * decay + _dot(weights.astype(values.dtype), values, int(last))


def _dot(left: jax.Array, right: jax.Array, axis: int) -> jax.Array:
    """Contracts the last axis of ``left`` with ``axis`` of ``right``; float32 keeps all its bits."""
    precision = lax.Precision.HIGHEST if left.dtype == jnp.float32 else None
    return lax.dot_general(
        left, right, (((1,), (axis,)), ((), ())), precision=precision, preferred_element_type=jnp.float32
    )
