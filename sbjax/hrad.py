"""H-RAD: from the target's last layers to how much of a line is worth verifying (arXiv 2506.01979).

A verdict is read behind every verification: the hidden states that produced the outcome and the embedding
of its token go through a small network. What the draft thought of its own line goes through a second,
smaller one, and the two results are added: with the models on meshes of their own only three numbers a
row cross from the target's side to the draft's.

Axes: ``F`` layers whose states are read, ``W`` positions of the line that are looked at, ``C`` tokens a
line can hold; the others as in ``language_model``.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
from flax import nnx

from sbjax.engine import Engine
from sbjax.indexing import at
from sbjax.language_model import Params
from sbjax.models.decoder import normal_draw
from sbjax.models.layers import Draw, Linear
from sbjax.verification import Outcome

NOTHING, UNDECIDED, EVERYTHING = range(3)
"""Verdicts: none of the next trunk will be accepted, a part or unknown, all of it."""

_EPS = 1e-6


class MLP(nnx.Module):
    """Linear layers with ReLU in between.

    Args:
      sizes: widths of input, hidden layers and output.
      draw: source of the initial parameters.
    """

    def __init__(self, sizes: tuple[int, ...], draw: Draw):
        pairs = enumerate(itertools.pairwise(sizes))
        # Before a ReLU, which halves what passes, weights are larger (He et al., arXiv 1502.01852).
        self.layers = nnx.Dict(
            {str(i): Linear(into, out, draw, bias=True, init_scale=2**0.5) for i, (into, out) in pairs}
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """``[..., sizes[0]]`` to ``[..., sizes[-1]]``."""
        last = len(self.layers) - 1
        for i in range(last):
            x = jax.nn.relu(self.layers[str(i)](x))
        return self.layers[str(last)](x)


@functools.lru_cache(maxsize=16)
def _graph(sizes: tuple[int, ...]) -> nnx.GraphDef:
    return nnx.split(nnx.eval_shape(lambda: MLP(sizes, normal_draw(0, "float32"))))[0]


def init_mlp(sizes: tuple[int, ...], seed: int) -> Params:
    """Draws the parameters of an ``MLP``: a plain nested dict of float32 arrays."""
    return nnx.to_pure_dict(nnx.state(MLP(sizes, normal_draw(seed, "float32"))))


def apply_mlp(params: Params, x: jax.Array) -> jax.Array:
    """Runs an ``MLP``, whose sizes are those of its parameters."""
    shapes = [params["layers"][str(i)]["weight"].shape for i in range(len(params["layers"]))]
    sizes = (shapes[0][1], *(out for out, _ in shapes))
    return nnx.merge(_graph(sizes), params)(x)


def target_inputs(engine: Engine, params: Params, features: jax.Array, outcome: Outcome) -> jax.Array:
    """What the predictor sees of the target, every vector divided by its root mean square.

    Args:
      engine: the static part.
      params: the target's parameters.
      features: ``[B, T, F, D]``, states of the last layers at all positions of the forward.
      outcome: what was decided; the position behind the accepted tokens produced it.

    Returns:
      ``[B, F + 1, D]`` float32: the states at that position, the last layer last, and the embedding of the
      outcome's token.
    """
    states = at(features, outcome.accepted).astype(jnp.float32)
    token = engine.target.embed(params, outcome.token).astype(jnp.float32)
    vectors = jnp.concatenate([states, token[:, None]], 1)
    return vectors * jax.lax.rsqrt(jnp.mean(jnp.square(vectors), -1, keepdims=True) + _EPS)


def line_inputs(confidence: jax.Array, length: jax.Array, positions: int) -> jax.Array:
    """What the predictor sees of the draft.

    Args:
      confidence: ``[B, C]`` float32, the draft's probability of every token of the line.
      length: ``[B]`` int32, tokens of the line; all but the last can be trunk.
      positions: ``W``; a line of any length gives inputs of the same width.

    Returns:
      ``[B, 2 W + 2]`` float32: the confidences in the first ``W`` possible trunk tokens (1 behind the
      trunk), their products so far, the product over the whole trunk, and its length over ``W``.
    """
    trunk = jnp.maximum(length - 1, 0)
    index = jnp.arange(confidence.shape[1], dtype=jnp.int32)[None]
    inside = jnp.where(index < trunk[:, None], confidence, 1)
    reached = jnp.cumprod(inside, 1)
    whole = reached[:, -1:]
    missing = ((0, 0), (0, max(0, positions - confidence.shape[1])))
    inside = jnp.pad(inside, missing, constant_values=1)[:, :positions]
    reached = jnp.pad(reached, missing, mode="edge")[:, :positions]
    return jnp.concatenate([inside, reached, whole, trunk[:, None].astype(jnp.float32) / positions], 1)


def target_logits(
    engine: Engine, params: dict[str, Params], features: jax.Array | None, outcome: Outcome
) -> jax.Array | None:
    """The target's part of the verdict.

    Args:
      engine: the static part.
      params: ``{"target": ..., "predictor": ...}``.
      features: ``[B, T, F, D]``, see ``checking.Checked``.
      outcome: what was decided.

    Returns:
      ``[B, 3]`` float32, or None where the method reads no features.

    Raises:
      ValueError: there is no predictor among the parameters.
    """
    if not engine.method.features:
        return None
    if params.get("predictor") is None:
        name = type(engine.method).__name__
        raise ValueError(
            f"{name}(features={engine.method.features}) needs a predictor: "
            'put its parameters beside the models\' as params["predictor"], or set features=0'
        )
    inputs = target_inputs(engine, params["target"], features, outcome)
    return apply_mlp(params["predictor"]["target"], inputs.reshape(inputs.shape[0], -1))


def decide(
    predictor: Params | None,
    logits: jax.Array | None,
    confidence: jax.Array,
    length: jax.Array,
    trust: float = 0.0,
) -> jax.Array:
    """The verdict on a line.

    Args:
      predictor: the predictor's parameters, of which only "line" is used, where it is there.
      logits: ``[B, 3]``, the target's part; None makes every verdict undecided.
      confidence: ``[B, C]`` float32, the draft's probability of every token of the line.
      length: ``[B]`` int32, tokens of the line.
      trust: a verdict whose probability is less is undecided.

    Returns:
      ``[B]`` int32: NOTHING, UNDECIDED or EVERYTHING.
    """
    if logits is None:
        return jnp.full_like(length, UNDECIDED)
    chances = jax.nn.softmax(fused_logits(predictor, logits, confidence, length))
    verdict = jnp.argmax(chances, -1).astype(jnp.int32)
    return jnp.where(chances.max(-1) >= trust, verdict, UNDECIDED)


def fused_logits(predictor: Params, logits: jax.Array, confidence: jax.Array, length: jax.Array) -> jax.Array:
    """The target's logits ``[B, 3]`` with those of the line's confidences added; see ``decide``."""
    if "line" not in predictor:
        return logits
    width = predictor["line"]["layers"]["0"]["weight"].shape[1]
    return logits + apply_mlp(predictor["line"], line_inputs(confidence, length, (width - 2) // 2))
