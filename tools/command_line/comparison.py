"""Plain against speculative decoding of the same prompts: the texts, and the times taking turns."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

import sbjax
from command_line.tables import add_counts
from command_line.timing import turns


@dataclasses.dataclass
class Side:
    """What one way of decoding gave.

    Attributes:
      tokens: for every prompt.
      summary: counters over all prompts.
      seconds: of decoding all prompts, once a repeat.
    """

    tokens: list[list[int]]
    summary: dict[str, Any]
    seconds: list[float] = dataclasses.field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the times."""
        return statistics.median(self.seconds)

    def figures(self) -> dict[str, Any]:
        """The counters with the median time."""
        return {**self.summary, "seconds": self.median}


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Both ways at one temperature.

    Attributes:
      temperature: of both.
      repeats: timed runs of each.
      plain: without a draft.
      speculative: with one.
      texts: of the prompts, as plain decoding has them.
    """

    temperature: float
    repeats: int
    plain: Side
    speculative: Side
    texts: list[str]

    @property
    def ratios(self) -> list[float]:
        """Time of plain over time of speculative decoding, of runs next to each other."""
        return [p / s for p, s in zip(self.plain.seconds, self.speculative.seconds, strict=True)]

    @property
    def first_difference(self) -> str | None:
        """Where the tokens differ first, None if nowhere."""
        pairs = zip(self.plain.tokens, self.speculative.tokens, strict=True)
        for prompt, (plain, speculative) in enumerate(pairs):
            if plain != speculative:
                return f"prompt {prompt} from token {first_difference(plain, speculative)} on"
        return None


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token in which two texts differ; None if they are equal."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return None if len(one) == len(other) else min(len(one), len(other))


def compare(
    target: sbjax.Model,
    draft: sbjax.Model,
    method: sbjax.Method,
    prompts: list[str],
    *,
    temperatures: Sequence[float],
    max_new_tokens: int,
    repeats: int,
) -> list[Comparison]:
    """Generates every prompt by itself, plain and with the method, after a warm-up of both.

    Args:
      target: the model whose text is wanted.
      draft: the model that guesses.
      method: how to decode with both.
      prompts: texts.
      temperatures: each is compared by itself.
      max_new_tokens: tokens a prompt at most.
      repeats: timed runs of each way, taking turns.
    """

    def run(chosen: sbjax.Method, temperature: float) -> list[sbjax.Result]:
        return [
            sbjax.generate(
                target,
                prompt,
                draft=draft,
                method=chosen,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                row_ids=[row],
            )
            for row, prompt in enumerate(prompts)
        ]

    found = []
    for temperature in temperatures:
        # The first run compiles and is not timed; it gives the texts.
        warm = {chosen: run(chosen, temperature) for chosen in (sbjax.Autoregressive(), method)}
        sides = {chosen: _side(results) for chosen, results in warm.items()}
        for chosen in turns(list(sides), repeats):
            sides[chosen].seconds.append(sum(result.decode_seconds for result in run(chosen, temperature)))
        plain, speculative = sides.values()
        texts = [result.texts[0] for result in warm[sbjax.Autoregressive()]]
        found.append(Comparison(temperature, repeats, plain, speculative, texts))
    return found


def _side(results: list[sbjax.Result]) -> Side:
    tokens = [result.generations[0].tokens for result in results]
    return Side(tokens, add_counts([result.statistics for result in results]))
