"""One timed run of a batch of token ids through ``start`` and ``run``, reading and decoding apart."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from command_line.timing import seconds

import sbjax
from sbjax.loops import loop_of

_ALL_ROUNDS = 2**30


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run gave.

    Attributes:
      tokens: the new tokens of every row.
      statistics: the counters, on the host.
      prefill_seconds: until all but the last token of every prompt were read.
      decode_seconds: of the rounds.
    """

    tokens: list[list[int]]
    statistics: sbjax.Statistics
    prefill_seconds: float
    decode_seconds: float


@dataclasses.dataclass(frozen=True, eq=False)
class Decoder:
    """A target, with or without a draft, and a method.

    Attributes:
      target: the model whose text is wanted.
      draft: None for plain decoding.
      method: how to decode.
    """

    target: sbjax.Model
    draft: sbjax.Model | None
    method: sbjax.Method

    @property
    def engine(self) -> sbjax.Engine:
        """The static part."""
        target, draft = self.target, self.draft
        sizes = [model.model.vocab_size for model in (target, draft) if model is not None]
        if target.tokenizer is not None:
            sizes.append(target.tokenizer.vocab_size)
        return sbjax.Engine(target.model, None if draft is None else draft.model, self.method, min(sizes))

    @property
    def params(self) -> dict:
        """The parameters as the engine takes them."""
        return {"target": self.target.params, "draft": None if self.draft is None else self.draft.params}

    def run(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        *,
        slots: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        row_ids: Sequence[int] | None = None,
        stop_ids: Sequence[int] = (),
        max_rounds: int = _ALL_ROUNDS,
    ) -> Run:
        """Decodes a batch in one call of the compiled loop.

        Args:
          prompts: token ids of every row.
          max_new_tokens: tokens a row at most.
          slots: cache slots; None takes the smallest bucket that fits.
          temperature: of all rows.
          seed: of all chance.
          row_ids: ids of the rows; None counts from 0.
          stop_ids: tokens that end a row.
          max_rounds: rounds at most.
        """
        rows = len(prompts)
        ids = jnp.asarray(range(rows) if row_ids is None else row_ids, jnp.uint32)
        engine, params = self.engine, self.params

        def begin() -> sbjax.State:
            return sbjax.start(
                engine,
                params,
                prompts,
                [max_new_tokens] * rows,
                sampling=sbjax.Sampling.create(rows, temperature),
                noise=sbjax.KeyedNoise.create(jnp.full(rows, seed, jnp.uint32), ids),
                stop_ids=[index for index in stop_ids if index < engine.vocab_size],
                slots=slots,
            )

        prefill_seconds, state = seconds(begin)
        decode_seconds, state = seconds(loop_of(params), engine, params, state, jnp.int32(max_rounds))
        text, length = np.asarray(state.text), np.asarray(state.length)
        tokens = [
            text[row, len(prompt) : end].tolist()
            for row, (prompt, end) in enumerate(zip(prompts, length, strict=True))
        ]
        return Run(tokens, state.statistics.host(), prefill_seconds, decode_seconds)


def add_statistics(parts: Sequence[sbjax.Statistics]) -> sbjax.Statistics:
    """The counters of several runs with one engine as those of one."""
    of_rows = set(parts[0].__dict__) - {"widths", "target_forwards", "draft_forwards"}
    summed = [
        part.replace(**{name: getattr(part, name).sum(0, keepdims=True) for name in of_rows})
        for part in parts
    ]
    total = jax.tree.map(lambda *leaves: np.sum(leaves, axis=0), *summed)
    return total.replace(widths=parts[0].widths)
