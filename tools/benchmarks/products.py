"""The floor of a decode step: a program of nothing but the model's matrix products.

Every matrix is used once a step in ``x @ W.T`` with one row, the output head over the padded
vocabulary included; each product needs the one before, so that none can be dropped, merged or moved
out of the loop. What joins them is elementwise on single rows: additions, and a squashing that keeps
numbers finite. There is no attention, no norm, no rotation, no cache, no sampling.

Axes: ``D`` model width, ``V`` vocabulary.
"""

import functools
import re

import jax
import jax.numpy as jnp

from sbjax.language_model import Params
from sbjax.models.config import DecoderConfig
from sbjax.models.projection import project
from sbjax.models.weight_names import weight_table


@functools.partial(jax.jit, static_argnames=("config",))
def run_products(config: DecoderConfig, params: Params, x: jax.Array, steps: jax.Array) -> jax.Array:
    """Runs ``steps`` steps one after the other.

    Args:
      config: the model's settings.
      params: its parameters.
      x: ``[1, D]``, of their dtype.
      steps: ``[]`` int32.

    Returns:
      ``[1, D]``.
    """
    return jax.lax.fori_loop(0, steps, lambda _, x: _step(config, params, x), x)


def _step(config: DecoderConfig, params: Params, x: jax.Array) -> jax.Array:
    for index in range(len(config.layers)):
        layer = params["layers"][str(index)]
        attention, mlp = layer["self_attn"], layer["mlp"]
        query, key, value = (_product(x, attention[name]) for name in ("q_proj", "k_proj", "v_proj"))
        wide = query + jnp.pad(key + value, ((0, 0), (0, query.shape[1] - key.shape[1])))
        x = _squash(x + _product(_squash(wide), attention["o_proj"]))
        inner = _product(x, mlp["gate_proj"]) * _product(x, mlp["up_proj"])
        x = _squash(x + _product(_squash(inner), mlp["down_proj"]))
    head = params["embed_tokens" if config.tie_embeddings else "lm_head"]
    return _squash(x + _product(x, head).max(1, keepdims=True))


def _product(x: jax.Array, linear: Params) -> jax.Array:
    return project(x, linear["weight"]).astype(x.dtype)


def _squash(x: jax.Array) -> jax.Array:
    return x / (1 + jnp.abs(x))


def matrices(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the matrices of a step; an embedding counts only where it is the head."""
    return {
        name: weight.shape
        for name, weight in weight_table(config).items()
        if len(weight.shape) == 2 and (config.tie_embeddings or name != "model.embed_tokens.weight")
    }


def count_products(config: DecoderConfig, params: Params) -> int:
    """How many products the compiled program has: as many as there are matrices, if none was lost."""
    x = jax.ShapeDtypeStruct((1, config.width), config.dtype)
    steps = jax.ShapeDtypeStruct((), jnp.int32)
    text = run_products.lower(config, params, x, steps).compile().as_text()
    return len(re.findall(r" dot\(", text))
