"""What is minimised: the next token for the target, the target's distribution for the draft."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from pair_training.architecture import forward_logits
from sbjax.language_model import Params
from sbjax.models.decoder import DecoderModel

Loss = Callable[..., jax.Array]
"""``(params, tokens [B, T + 1], teacher) -> scalar``; teacher is None or a model's parameters."""


def next_token(model: DecoderModel) -> Loss:
    """Mean cross entropy of the next token, in nats."""

    def loss(params: Params, tokens: jax.Array, teacher: None) -> jax.Array:
        logits = forward_logits(model, params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return loss


def distillation(model: DecoderModel, teacher_model: DecoderModel, weight: float) -> Loss:
    """``weight`` parts divergence from the target, the rest cross entropy of the next token.

    A drafted token is accepted as often as the two distributions overlap, so the draft learns the
    target's rather than the text's (arXiv:2310.08461).
    """

    def loss(params: Params, tokens: jax.Array, teacher: Params) -> jax.Array:
        wanted = jax.nn.softmax(forward_logits(teacher_model, teacher, tokens[:, :-1]))
        logs = jax.nn.log_softmax(forward_logits(model, params, tokens[:, :-1]))
        truth = jnp.take_along_axis(logs, tokens[:, 1:, None], axis=-1)[..., 0]
        # The target's own entropy is a constant; adding it makes zero the best value there is.
        entropy = jnp.sum(jax.scipy.special.xlogy(wanted, wanted), -1)
        divergence = entropy - jnp.sum(wanted * logs, -1)
        return (weight * divergence - (1 - weight) * truth).mean()

    return loss
