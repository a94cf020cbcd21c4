"""What changes the program (the engine, static) and what a run carries along (the state, a pytree)."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp

from sbjax.cache import KVCache
from sbjax.language_model import LanguageModel
from sbjax.line import Line
from sbjax.methods.base import Method
from sbjax.noise import KeyedNoise, ScriptedNoise
from sbjax.scores import Sampling
from sbjax.statistics import Statistics

RUNNING, STOP, LENGTH, INVALID = range(4)
"""Status of a row: alive; ended by a stop token; at its limit; the target gave no usable logits."""

RULES = ("match", "token", "block")


@dataclasses.dataclass(frozen=True)
class Engine:
    """Everything that changes the compiled program.

    Attributes:
      target: the model whose text is reproduced.
      draft: the model that guesses; None for methods without one.
      method: the policy of the round.
      vocab_size: ``V``, the real vocabulary; columns of the models past it are cut off.
      rule: "match" (the shared-noise rule), "token" or "block" (see ``verification``).
      log_probs: whether to record the log-probability of every emitted token.
      widths: tokens that a target forward can have, the last one enough for the longest trunk (or, of
        Lookahead, for all guesses, the first for its window); None chooses. A round takes the smallest
        that fits.

    Raises:
      ValueError: if the parts do not fit together.
    """

    target: LanguageModel
    draft: LanguageModel | None
    method: Method
    vocab_size: int
    rule: str = "match"
    log_probs: bool = False
    widths: tuple[int, ...] | None = None

    def __post_init__(self):
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        if self.method.draft_length == "auto":
            raise ValueError('draft_length "auto" has to be resolved first, see sbjax.resolve_draft_length')
        least, most = self._forward_tokens
        if self.widths is not None and (
            not self.widths
            or list(self.widths) != sorted(set(self.widths))
            or self.widths[0] < least
            or self.widths[-1] != most
        ):
            raise ValueError(f"widths must rise from at least {least} to {most}, got {self.widths}")
        name = type(self.method).__name__
        if self.method.draft_length and self.draft is None:
            raise ValueError(f"{name} needs a draft model; plain decoding is Autoregressive()")
        if self.rule != "match" and self.trunk_limit and not self.method.draft_length:
            raise ValueError(
                f'{name} has no draft whose law the {self.rule} rule could test: use rule="match", or SpS'
            )
        for name, model in (("target", self.target), ("draft", self.draft)):
            if model is not None and model.vocab_size < self.vocab_size:
                raise ValueError(
                    f"the {name} has {model.vocab_size} logits for a vocabulary of {self.vocab_size}"
                )
        if self.method.features:
            self._check_features()

    def _check_features(self) -> None:
        """Refuses what H-RAD cannot read, or may not."""
        name, features = type(self.method).__name__, self.method.features
        if self.rule == "block":
            raise ValueError(
                f'{name}(features={features}) does not go with rule="block", whose trunk may not be cut by '
                'what is drawn behind the cut: set features=0, or rule "match" or "token"'
            )
        if getattr(self.target, "embed", None) is None:
            raise ValueError(
                f"{name}(features={features}) reads the target's embeddings, but "
                f"{type(self.target).__name__} has no embed(params, tokens): give it one, or set features=0"
            )
        layers = (
            self.target.cache_spec.layers
        )  # 0 for a model that keeps nothing, which may have any features
        if 0 < layers < features:
            raise ValueError(
                f"{name}(features={features}) reads more layers than the {layers} that the target has"
            )

    @property
    def trunk_limit(self) -> int:
        """The longest trunk that a target forward can be asked to check."""
        return self.method.line_length - 1 if self.method.overlapped else self.method.trunk_length

    @property
    def tested(self) -> int:
        """Positions that a round can test: the trunk, and with overlap the main head behind it."""
        return self.trunk_limit + int(self.method.overlapped)

    @property
    def _forward_tokens(self) -> tuple[int, int]:
        """Tokens that a target forward has at least and at most."""
        return getattr(self.method, "forward_tokens", (1, self.trunk_limit + 1))

    @property
    def target_widths(self) -> tuple[int, ...]:
        """Tokens that a target forward can have: ``widths``, or one, eights doubled, and the longest.

        On CPU a forward of 2 to 8 tokens costs about the same, 1.4 times one of a single token; on
        accelerators all widths cost the same, and ``(trunk_limit + 1,)`` compiles faster.
        """
        if self.widths is not None:
            return self.widths
        least, most = self._forward_tokens
        eights = [8 << i for i in range(8) if least < 8 << i < most]
        return tuple(sorted({least, *eights, most}))

    @property
    def slack(self) -> int:
        """Slots that a round can write past the committed text."""
        if self.method.overlapped:
            return self.method.line_length + self.method.draft_length + 1
        return self.trunk_limit + 1


@chex.dataclass(frozen=True, mappable_dataclass=False)
class State:
    """A run between two rounds: fixed shapes, donated from call to call.

    Attributes:
      text: ``[B, S]`` int32, prompt and generated tokens; the last committed one is pending, the
        target has not processed it yet.
      length: ``[B]`` int32, committed tokens, prompt included.
      limit: ``[B]`` int32, the largest length the row may reach.
      status: ``[B]`` int32, RUNNING, STOP, LENGTH or INVALID.
      stop_ids: ``[B, E]`` int32, tokens that end the row; -1 fills up.
      sampling: settings of every row.
      noise: the source of chance.
      text_hash: ``[B]``, the noise's hash of the generated text; None under the shared-noise rule.
      target: the target's cache, ``length - 1`` slots filled.
      draft: the draft's cache, or None.
      log_probs: ``[B, S]`` float32 beside ``text``, or None.
      statistics: the counters.
      line: what is drafted behind the text; None without overlap.
      memory: what the method remembers of every row, or None.
    """

    text: jax.Array
    length: jax.Array
    limit: jax.Array
    status: jax.Array
    stop_ids: jax.Array
    sampling: Sampling
    noise: KeyedNoise | ScriptedNoise
    text_hash: jax.Array | None
    target: KVCache
    draft: KVCache | None
    log_probs: jax.Array | None
    statistics: Statistics
    line: Line | None = None
    memory: Any = None

    @property
    def alive(self) -> jax.Array:
        """``[B]`` bool, rows that still run."""
        return self.status == RUNNING


def create_state(
    engine: Engine,
    text: jax.Array,
    length: jax.Array,
    limit: jax.Array,
    stop_ids: jax.Array,
    sampling: Sampling,
    noise: KeyedNoise | ScriptedNoise,
    target: KVCache,
    draft: KVCache | None,
) -> State:
    """Lays out a run; the fields are those of ``State``.

    Args:
      engine: the static part.
      text: ``[B, S]`` int32, the prompts, filled up behind their length with anything.
      length: ``[B]`` int32, tokens of every prompt, at least one.
      limit: ``[B]`` int32; the caller has seen to it that ``limit + engine.slack <= S``.
      stop_ids: ``[B, E]`` int32.
      sampling: settings of every row.
      noise: the source of chance.
      target: the target's cache, all but the last token of every prompt read.
      draft: the draft's cache, likewise, or None.
    """
    # Copies, since the state is donated and the caller may keep what was passed.
    return State(
        text=jnp.array(text, jnp.int32),
        length=jnp.array(length, jnp.int32),
        limit=jnp.array(limit, jnp.int32),
        status=jnp.where(length < limit, RUNNING, LENGTH).astype(jnp.int32),
        stop_ids=jnp.array(stop_ids, jnp.int32),
        sampling=jax.tree.map(jnp.copy, sampling),
        noise=jax.tree.map(jnp.copy, noise),
        text_hash=None if engine.rule == "match" else noise.start(),
        target=target,
        draft=draft,
        log_probs=jnp.zeros(text.shape, jnp.float32) if engine.log_probs else None,
        statistics=Statistics.create(text.shape[0], engine.tested, engine.target_widths),
        line=Line.create(engine, text.shape[0]) if engine.method.overlapped else None,
        memory=None if engine.method.overlapped else engine.method.create(text, length),
    )
