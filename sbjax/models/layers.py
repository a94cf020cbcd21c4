"""The parts of a decoder layer as Flax NNX modules, named like the weights of a checkpoint.

Parameters and activations have the config's dtype; products accumulate in float32, and norms,
rotations and the softmax are computed in float32.

Axes: ``B`` rows, ``T`` tokens in a forward, ``N`` query heads, ``M`` key/value heads, ``H`` head
width, ``D`` model width.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from sbjax.models.config import DecoderConfig
from sbjax.models.projection import project
from sbjax.models.rotary import rotate

Draw = Callable[[tuple[int, ...], float], jax.Array]
"""Source of initial values: ``(shape, standard deviation)`` to an array of the config's dtype."""

_ACTIVATIONS = {"silu": jax.nn.silu, "gelu_tanh": functools.partial(jax.nn.gelu, approximate=True)}


def _per_channel(vector: jax.Array, like: jax.Array) -> jax.Array:
    """A vector ``[C]`` as float32 ``[1, ..., C]`` with the rank of ``like``."""
    return jnp.expand_dims(vector.astype(jnp.float32), tuple(range(like.ndim - 1)))


class Linear(nnx.Module):
    """``x @ weight.T + bias``.

    Attributes:
      weight: ``[out, in]``, as in a checkpoint.
      bias: ``[out]``, if there is one.
    """

    def __init__(self, into: int, out: int, draw: Draw, *, bias: bool, init_scale: float = 1.0):
        self.weight = nnx.Param(draw((out, into), init_scale * into**-0.5))
        self.bias = nnx.Param(draw((out,), 0.0)) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """``[..., in]`` to ``[..., out]``."""
        out = project(x, self.weight[...])
        if self.bias is not None:
            out = out + _per_channel(self.bias[...], out)
        return out.astype(x.dtype)


class RMSNorm(nnx.Module):
    """Root mean square norm over the last axis (arXiv:1910.07467).

    Attributes:
      weight: ``[C]``; the factor is ``weight + offset``.
    """

    def __init__(self, size: int, config: DecoderConfig):
        self.weight = nnx.Param(jnp.full(size, 1.0 - config.norm_offset, config.dtype))
        self.offset = config.norm_offset
        self.eps = config.norm_eps

    def __call__(self, x: jax.Array) -> jax.Array:
        """``[..., C]`` to ``[..., C]``."""
        wide = x.astype(jnp.float32)
        wide = wide * jax.lax.rsqrt(jnp.mean(jnp.square(wide), -1, keepdims=True) + self.eps)
        return (wide * (_per_channel(self.weight[...], wide) + self.offset)).astype(x.dtype)


class MLP(nnx.Module):
    """The gated MLP (arXiv:2002.05202)."""

    def __init__(self, config: DecoderConfig, draw: Draw, *, out_scale: float):
        width, inner, bias = config.width, config.mlp_width, config.mlp_bias
        self.gate_proj = Linear(width, inner, draw, bias=bias)
        self.up_proj = Linear(width, inner, draw, bias=bias)
        self.down_proj = Linear(inner, width, draw, bias=bias, init_scale=out_scale)
        self.activation = config.activation

    def __call__(self, x: jax.Array) -> jax.Array:
        """``[B, T, D]`` to ``[B, T, D]``."""
        gate = _ACTIVATIONS[self.activation](self.gate_proj(x))
        return self.down_proj(gate * self.up_proj(x))


class Attention(nnx.Module):
    """Grouped attention over whatever the cache holds and the new tokens."""

    def __init__(self, config: DecoderConfig, layer: int, draw: Draw, *, out_scale: float):
        width, bias = config.width, config.qkv_bias
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.q_proj = Linear(width, queries, draw, bias=bias)
        self.k_proj = Linear(width, keys, draw, bias=bias)
        self.v_proj = Linear(width, keys, draw, bias=bias)
        self.o_proj = Linear(queries, width, draw, bias=config.out_bias, init_scale=out_scale)
        self.q_norm = RMSNorm(config.head_dim, config) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config) if config.qk_norm else None
        self.head_dim = config.head_dim
        self.layer = layer
        self.scale = config.attention_scale
        self.window = config.layers[layer].window

    def __call__(self, x, positions, cache, mask, cos, sin) -> tuple[jax.Array, Any]:
        """Attends.

        Args:
          x: ``[B, T, D]``.
          positions: ``[B, T]`` int32.
          cache: anything with ``attend``.
          mask: among the new tokens, see ``LanguageModel.forward``.
          cos: ``[B, T, 1, H/2]`` float32.
          sin: ``[B, T, 1, H/2]`` float32.

        Returns:
          ``[B, T, D]`` and the cache with this layer's new keys and values.
        """
        heads = (*x.shape[:2], -1, self.head_dim)
        query, key = self.q_proj(x).reshape(heads), self.k_proj(x).reshape(heads)
        if self.q_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        out, cache = cache.attend(
            self.layer,
            rotate(query, cos, sin),
            rotate(key, cos, sin),
            self.v_proj(x).reshape(heads),
            positions,
            mask,
            scale=self.scale,
            window=self.window,
        )
        return self.o_proj(out.reshape(*x.shape[:2], -1)), cache


class Layer(nnx.Module):
    """Attention and MLP, each behind a norm, each added to the stream.

    With ``sandwich_norms`` both outputs are normalised before they are added; a checkpoint's
    ``post_attention_layernorm`` is then the norm of the attention's output, otherwise the MLP's input.
    """

    def __init__(self, config: DecoderConfig, layer: int, draw: Draw):
        # Outputs into the stream start smaller, so that its size does not grow with the depth (GPT-2).
        out_scale = (2 * len(config.layers)) ** -0.5
        self.input_layernorm = RMSNorm(config.width, config)
        self.self_attn = Attention(config, layer, draw, out_scale=out_scale)
        self.post_attention_layernorm = RMSNorm(config.width, config)
        self.mlp = MLP(config, draw, out_scale=out_scale)
        self.sandwich = config.sandwich_norms
        if self.sandwich:
            self.pre_feedforward_layernorm = RMSNorm(config.width, config)
            self.post_feedforward_layernorm = RMSNorm(config.width, config)

    def __call__(self, x, positions, cache, mask, cos, sin) -> tuple[jax.Array, Any]:
        """``[B, T, D]`` to ``[B, T, D]`` and the cache; arguments as in ``Attention``."""
        out, cache = self.self_attn(self.input_layernorm(x), positions, cache, mask, cos, sin)
        if not self.sandwich:
            x = x + out
            return x + self.mlp(self.post_attention_layernorm(x)), cache
        x = x + self.post_attention_layernorm(out)
        out = self.mlp(self.pre_feedforward_layernorm(x))
        return x + self.post_feedforward_layernorm(out), cache
