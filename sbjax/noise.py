"""Sources of chance: keyed noise for real runs, and a script for exhaustive enumeration.

Under the shared-noise rule all chance is one Gumbel row for each (seed, row, position), the same for
draft and target. The token and the block rule draw and test; their noise is keyed by (seed, row,
text before the position, purpose), because noise keyed by the position alone biases the block rule.
"""

import enum

import chex
import jax
import jax.numpy as jnp


class Purpose(enum.IntEnum):
    """What a number is drawn for; numbers of different purposes are independent."""

    DRAFT = 0
    ACCEPT = 1
    EMIT = 2


@chex.dataclass(frozen=True, mappable_dataclass=False)
class KeyedNoise:
    """Noise that is a pure function of seed, row and place in the text.

    Attributes:
      row_key: ``[B]`` typed keys, made of seed and row id.
    """

    row_key: jax.Array

    @classmethod
    def create(cls, seed: jax.Array, row: jax.Array) -> "KeyedNoise":
        """Makes the noise of rows with seeds ``[B]`` and ids ``[B]``, both uint32.

        The generator is threefry by name: rbg is not the same under ``vmap``.
        """

        def one(seed, row):
            return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), row)

        return cls(row_key=jax.vmap(one)(seed, row))

    def keys(self, positions: jax.Array) -> jax.Array:
        """Returns ``[B, T, 2]`` uint32: what the shared noise at ``positions [B, T]`` is made of."""
        fold = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)))
        return jax.random.key_data(fold(self.row_key, positions))

    def start(self) -> jax.Array:
        """The hash ``[B]`` of a text of which nothing is generated yet."""
        return jax.vmap(jax.random.fold_in, (0, None))(self.row_key, 0)

    def extend(self, text: jax.Array, tokens: jax.Array) -> jax.Array:
        """Hashes ``[B, T + 1]`` of the text ``text [B]`` with ``0 .. T`` of ``tokens [B, T]`` behind it."""
        hashes = [text]
        for token in tokens.T:
            hashes.append(jax.vmap(jax.random.fold_in)(hashes[-1], token))
        return jnp.stack(hashes, 1)

    def draw(self, weights: jax.Array, text: jax.Array, purpose: Purpose) -> tuple[jax.Array, "KeyedNoise"]:
        """Draws one token a row by ``weights [B, V]``, which need not sum to one.

        A token of weight zero is never drawn while another has weight.
        """
        keys = jax.vmap(jax.random.fold_in, (0, None))(text, int(purpose))
        noise = jax.vmap(lambda k: jax.random.gumbel(k, weights.shape[1:], jnp.float32))(keys)
        return jnp.argmax(jnp.log(weights) + noise, -1).astype(jnp.int32), self

    def accept(self, p, q, text, purpose: Purpose) -> tuple[jax.Array, "KeyedNoise"]:
        """Tests ``[B]`` bool with chance ``min(1, p / q)``: strict and without division."""
        keys = jax.vmap(jax.random.fold_in, (0, None))(text, int(purpose))
        u = jax.vmap(lambda k: jax.random.uniform(k, (), jnp.float32))(keys)
        return u * q < p, self


@chex.dataclass(frozen=True, mappable_dataclass=False)
class ScriptedNoise:
    """Chance that follows a script and keeps the probability of having followed it.

    Give every row of a batch another script, run the real engine, and the sum of ``weight`` over the
    rows that emitted a text is the exact probability of that text. All outcomes of a draw add up to
    one whether or not the draw mattered, so draws of finished or masked rows need no special care.
    Only the token and the block rule draw; the shared-noise rule is tested by equality instead.

    Attributes:
      script: ``[B, n]`` int32, the outcome of every draw: a token, or 0 accept and 1 refuse.
      weight: ``[B]`` float32, the probability of the script so far.
      cursor: ``[]`` int32, the next entry.
    """

    script: jax.Array
    weight: jax.Array
    cursor: jax.Array

    @classmethod
    def create(cls, script: jax.Array) -> "ScriptedNoise":
        """Starts the scripts ``[B, n]``, one a row."""
        return cls(script=script, weight=jnp.ones(script.shape[0], jnp.float32), cursor=jnp.int32(0))

    def start(self) -> jax.Array:
        """A script does not depend on the text; see ``KeyedNoise.start``."""
        return jnp.zeros(self.script.shape[0], jnp.int32)

    def extend(self, text: jax.Array, tokens: jax.Array) -> jax.Array:
        """See ``KeyedNoise.extend``."""
        return jnp.zeros((text.shape[0], tokens.shape[1] + 1), jnp.int32)

    def draw(
        self, weights: jax.Array, text: jax.Array, purpose: Purpose
    ) -> tuple[jax.Array, "ScriptedNoise"]:
        """Returns the scripted token of every row and multiplies in its probability."""
        del text, purpose
        return self._take(weights / weights.sum(-1, keepdims=True))

    def accept(self, p, q, text, purpose: Purpose) -> tuple[jax.Array, "ScriptedNoise"]:
        """Returns the scripted verdict of every row and multiplies in its probability."""
        del text, purpose
        chance = jnp.where(q > 0, jnp.minimum(p / jnp.where(q > 0, q, 1), 1), (p > 0).astype(jnp.float32))
        outcome, noise = self._take(jnp.stack([chance, 1 - chance], -1))
        return outcome == 0, noise

    def _take(self, law: jax.Array) -> tuple[jax.Array, "ScriptedNoise"]:
        """Takes the next entry; an outcome the law does not have, or a script too short, weighs nothing."""
        outcome = jnp.take(self.script, self.cursor, axis=1, mode="fill", fill_value=law.shape[1])
        inside = outcome < law.shape[1]
        index = jnp.where(inside, outcome, 0)
        chance = jnp.where(inside, jnp.take_along_axis(law, index[:, None], 1)[:, 0], 0)
        return index, self.replace(weight=self.weight * chance, cursor=self.cursor + 1)
