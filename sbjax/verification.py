"""How drafted tokens are chosen and tested: the shared-noise rule, the token rule, the block rule.

``match``  Draft and target score with the same noise; a token is accepted if it equals the target's
           pick. Nothing but picks is compared, and the text is that of plain decoding.
``token``  Speculative sampling: u * q(x) < p(x), strictly and without division; a rejection draws
           from norm(max(p - q, 0)) (Leviathan et al., arXiv 2211.17192; Chen et al., 2302.01318).
``block``  Block verification: the longest prefix that passes a joint test (arXiv 2403.10444).

All three keep the target's law; only ``match`` keeps plain decoding's text.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from kernels_pallas.verify import reference
from sbjax import scores
from sbjax.indexing import at
from sbjax.noise import Purpose
from sbjax.scores import Sampling


class Trunk(NamedTuple):
    """The drafted tokens that the target checks in a round.

    Attributes:
      tokens: ``[B, G]`` int32.
      length: ``[B]`` int32, how many of them count.
      laws: ``[B, G, V]`` float32, the very rows the tokens were drawn from; None under ``match``.
    """

    tokens: jax.Array
    length: jax.Array
    laws: jax.Array | None


class Outcome(NamedTuple):
    """What a verification decides.

    Attributes:
      accepted: ``[B]`` int32, how many trunk tokens stay.
      token: ``[B]`` int32, the token that follows them.
    """

    accepted: jax.Array
    token: jax.Array


class SharedNoise(NamedTuple):
    """The noise of the shared-noise rule at some positions.

    Attributes:
      keys: ``[B, R, 2]`` uint32, what it is made of.
      rows: ``[B, R, V]`` float32.
    """

    keys: jax.Array
    rows: jax.Array


def shared_noise(noise: Any, positions: jax.Array, vocab_size: int, sampling: Sampling) -> SharedNoise:
    """The noise of ``positions [B, R]``; its rows are not even drawn if every row of the batch is greedy."""
    keys = noise.keys(positions)
    return SharedNoise(keys, reference.gumbel(keys, vocab_size, sampling.temperature))


def choose(rule: str, logits: jax.Array, shared, text, noise: Any, sampling: Sampling):
    """Chooses the next drafted tokens of chains or branches from logits ``[B, K, V]``.

    Args:
      rule: "match", "token" or "block".
      logits: ``[B, K, V]`` float32.
      shared: ``[B, K, V]``, the positions' shared noise; None under the other rules.
      text: ``[B, K]``, hashes of the text before the positions; None under ``match``.
      noise: the source of chance.
      sampling: settings of the rows.

    Returns:
      Tokens ``[B, K]`` int32; the rows that decided ``[B, K, V]``, scores under ``match`` and otherwise the
      logarithm of the law; the law they were drawn from ``[B, K, V]`` (None under ``match``); the noise.
    """
    if rule == "match":
        rows = scores.score(logits, shared, sampling)
        return scores.pick(rows), rows, None, noise
    laws, tokens = scores.distribution(logits, sampling), []
    for branch in range(logits.shape[1]):
        token, noise = noise.draw(laws[:, branch], text[:, branch], Purpose.DRAFT)
        tokens.append(token)
    return jnp.stack(tokens, 1), jnp.log(laws), laws, noise


def verify(rule: str, logits: jax.Array, trunk: Trunk, text, noise: Any, sampling: Sampling):
    """Decides a round under the token or the block rule.

    Args:
      rule: "token" or "block"; under the shared-noise rule the target's picks decide, see ``match``.
      logits: ``[B, T, V]`` float32 target rows behind the pending token and the first ``T - 1`` trunk
        tokens; no trunk is longer than ``T - 1``.
      trunk: what is checked.
      text: ``[B]``, hash of the committed text.
      noise: the source of chance.
      sampling: settings of the rows.

    Returns:
      The ``Outcome`` and the noise.
    """
    tested = logits.shape[1] - 1
    laws = scores.distribution(logits, sampling)
    text = noise.extend(text, trunk.tokens[:, :tested])
    test = _token_rule if rule == "token" else _block_rule
    accepted, weight, noise = test(laws, trunk, text, noise)
    law = _law_behind(laws, trunk, accepted, weight)
    token, noise = noise.draw(law, at(text, accepted), Purpose.EMIT)
    return Outcome(accepted, token), noise


def match(picks: jax.Array, trunk: Trunk) -> Outcome:
    """Accepts trunk tokens while they equal the target's picks ``[B, T]``; the next pick follows."""
    return Outcome(*reference.match(picks, trunk.tokens, trunk.length))


def _token_rule(laws, trunk: Trunk, text, noise):
    """Tests one token after the other: how many stay, the weight of p behind them (one), the noise."""
    rows, tested = laws.shape[0], laws.shape[1] - 1
    accepted, going = jnp.zeros(rows, jnp.int32), jnp.ones(rows, bool)
    for i in range(tested):
        token = trunk.tokens[:, i]
        p, q = at(laws[:, i], token), at(trunk.laws[:, i], token)
        passed, noise = noise.accept(p, q, text[:, i], Purpose.ACCEPT)
        going = going & passed & (i < trunk.length)
        accepted = accepted + going.astype(jnp.int32)
    return accepted, jnp.ones(rows, jnp.float32), noise


def _block_rule(laws, trunk: Trunk, text, noise):
    """Keeps the longest prefix that passes; a later pass overrides an earlier refusal."""
    rows, tested = laws.shape[0], laws.shape[1] - 1
    weight, kept = jnp.ones(rows, jnp.float32), jnp.ones(rows, jnp.float32)
    accepted = jnp.zeros(rows, jnp.int32)
    for i in range(tested):
        token = trunk.tokens[:, i]
        p, q = at(laws[:, i], token), at(trunk.laws[:, i], token)
        weight = jnp.minimum(1, weight * p / jnp.where(q > 0, q, 1))
        behind = trunk.laws[:, min(i + 1, tested - 1)]
        rest = jnp.maximum(weight[:, None] * laws[:, i + 1] - behind, 0).sum(-1)
        spread = rest + 1 - weight
        inner = jnp.where(spread > 0, rest / jnp.where(spread > 0, spread, 1), 1)
        chance = jnp.where(trunk.length == i + 1, weight, inner)
        passed, noise = noise.accept(chance, jnp.ones_like(chance), text[:, i + 1], Purpose.ACCEPT)
        passed = passed & (i < trunk.length)
        accepted = jnp.where(passed, i + 1, accepted)
        kept = jnp.where(passed, weight, kept)
    return accepted, kept, noise


def _law_behind(laws, trunk: Trunk, accepted, weight) -> jax.Array:
    """The weights ``[B, V]`` of the next token: p behind a whole trunk, else max(w p - q, 0)."""
    p = at(laws, accepted)
    if laws.shape[1] == 1:
        return p
    q = at(trunk.laws, jnp.minimum(accepted, trunk.laws.shape[1] - 1))
    rest = jnp.maximum(weight[:, None] * p - q, 0)
    # Equal rows leave nothing but rounding: then the draw is from p itself.
    whole = (accepted >= trunk.length) | (rest.sum(-1) <= 0)
    return jnp.where(whole[:, None], p, rest)
