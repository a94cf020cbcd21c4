"""How a checkpoint wants to be sampled, and what a caller may change about it."""

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbjax.generation_fields import OBEYED, REFUSED, WITHOUT_EFFECT
from sbjax.json_file import read_json
from sbjax.text import StopStrings, Tokenizer


class UnsupportedSampling(ValueError):
    """A processor of the scores was asked for that is not implemented."""


@dataclasses.dataclass(frozen=True)
class GenerationDefaults:
    """What a checkpoint's files say about generation. Without arguments: greedy, and nothing ends a text.

    Attributes:
      stop_ids: tokens that end a text.
      stop_strings: strings that end a text.
      max_new_tokens: limit of new tokens, None if the files name none.
      do_sample: whether the checkpoint is meant to be sampled; if not, its temperature counts only for a
        caller who passes `do_sample=True`.
      temperature: divides the logits.
      top_k: how many tokens are kept, 0 for all.
      top_p: share of the probability that is kept, 1 for all.
      refused: settings that ask for something not implemented, or for something unknown; `resolve` refuses
        those that the caller does not switch off.
      source: the file they come from, for messages.
    """

    stop_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()
    max_new_tokens: int | None = None
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    refused: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    source: str = "the defaults"

    @classmethod
    def from_folder(cls, folder: str | Path, tokenizer: Tokenizer | None = None) -> "GenerationDefaults":
        """Reads generation_config.json.

        Stop ids are the file's `eos_token_id` (one or several), or config.json's if the file has none, and
        in both cases the tokenizer's eos token as well: chat models are published whose file still names
        the base model's token only, and would talk past the end of their turn. (vLLM joins them too,
        transformers takes the file alone.) Only what the file says counts; transformers' own fallback
        `top_k = 50` is not applied.

        Args:
          folder: a checkpoint folder; generation_config.json and config.json may be missing.
          tokenizer: the checkpoint's tokenizer.

        Raises:
          ValueError: a file is damaged, or a value has the wrong type or is no token id.
        """
        path = Path(folder) / "generation_config.json"
        given = {key: value for key, value in read_json(path).items() if value is not None and key[0] != "_"}
        unknown = given.keys() - OBEYED - REFUSED.keys() - WITHOUT_EFFECT.keys()
        active = {key for key in given.keys() & REFUSED.keys() if not REFUSED[key].is_off(given[key])}
        try:
            return cls(
                stop_ids=_stop_ids(given, Path(folder), tokenizer),
                stop_strings=StopStrings(given.get("stop_strings", ())).strings,
                max_new_tokens=_number(given, "max_new_tokens", int, None),
                do_sample=bool(given.get("do_sample", False)),
                temperature=_number(given, "temperature", float, 1.0),
                top_k=_number(given, "top_k", int, 0),
                top_p=_number(given, "top_p", float, 1.0),
                refused={key: given[key] for key in given if key in unknown | active},
                source=str(path),
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"generation settings of {folder}: {error}") from error


@dataclasses.dataclass(frozen=True)
class GenerationSettings:
    """Settings of one call, after the caller's wishes.

    Attributes:
      temperature: 0 for greedy. As the caller gave it: one value, or one a row.
      top_k: 0 for all tokens. As the caller gave it.
      top_p: 1 for all tokens. As the caller gave it.
      stop_ids: tokens that end a text.
      stop_strings: strings that end a text.
      max_new_tokens: limit of new tokens, None if nobody named one.
    """

    temperature: Any
    top_k: Any
    top_p: Any
    stop_ids: tuple[int, ...]
    stop_strings: tuple[str, ...]
    max_new_tokens: int | None


def resolve(defaults: GenerationDefaults, overrides: Mapping[str, Any] | None = None) -> GenerationSettings:
    """Joins a checkpoint's defaults with what the caller asks for.

    The caller uses the names of transformers' GenerationConfig. None means the default, except for settings
    that are not implemented: there None, or the neutral value (e.g. `repetition_penalty=1.0`), switches off
    what the checkpoint asks for. Ranges of temperature, top_k and top_p are checked where they are used.

    Args:
      defaults: what the checkpoint says.
      overrides: the caller's settings by name.

    Returns:
      The settings to use.

    Raises:
      TypeError: there is no setting of that name, or it has no effect here.
      UnsupportedSampling: something is asked for that is not implemented, by the caller or by the checkpoint.
      ValueError: contradictory or malformed settings.
    """
    overrides = dict(overrides or {})
    _check_names(overrides, defaults)
    asked = {key: value for key, value in overrides.items() if key in OBEYED and value is not None}
    temperature = _temperature(defaults, asked)
    _refuse(defaults, overrides, greedy=not np.any(np.asarray(temperature) != 0))
    stop_ids = defaults.stop_ids
    if "eos_token_id" in asked:
        stop_ids = _as_ids(asked["eos_token_id"])
    return GenerationSettings(
        temperature=temperature,
        top_k=asked.get("top_k", defaults.top_k),
        top_p=asked.get("top_p", defaults.top_p),
        stop_ids=stop_ids,
        stop_strings=StopStrings(asked.get("stop_strings", defaults.stop_strings)).strings,
        max_new_tokens=asked.get("max_new_tokens", defaults.max_new_tokens),
    )


def _check_names(overrides: Mapping[str, Any], defaults: GenerationDefaults) -> None:
    """Refuses names that mean nothing here."""
    for name, value in overrides.items():
        if name in OBEYED or name in REFUSED or (name in defaults.refused and value is None):
            continue
        if name in WITHOUT_EFFECT:
            raise TypeError(f"{name} has no effect here, leave it out: {WITHOUT_EFFECT[name]}")
        close = difflib.get_close_matches(name, [*OBEYED, *REFUSED], n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(OBEYED))}"
        raise TypeError(f"there is no generation setting {name!r}; {hint}")


def _refuse(defaults: GenerationDefaults, overrides: Mapping[str, Any], greedy: bool) -> None:
    """Refuses what is not implemented, all of it in one message."""
    problems = []
    for name, value in overrides.items():
        if name in REFUSED and not REFUSED[name].is_off(value):
            problems.append(f"{name}={value!r} is not implemented, leave it out")
    for name, value in defaults.refused.items():
        if name in overrides or (greedy and name in REFUSED and REFUSED[name].sampling_only):
            continue
        known = "is not implemented" if name in REFUSED else "is not known here"
        neutral = REFUSED[name].neutral if name in REFUSED else None
        problems.append(
            f"{defaults.source} asks for {name}={value!r}, which {known}; pass {name}={neutral!r} to do "
            "without it"
        )
    if problems:
        raise UnsupportedSampling("; ".join(problems))


def _temperature(defaults: GenerationDefaults, asked: Mapping[str, Any]) -> Any:
    """The temperature: the caller's, else the checkpoint's if there is to be sampling, else 0."""
    sample = asked.get("do_sample", defaults.do_sample)
    if "temperature" not in asked:
        return defaults.temperature if sample else 0.0
    temperature = asked["temperature"]
    zero = np.asarray(temperature) == 0
    if "do_sample" in asked and np.any(zero if sample else ~zero):
        raise ValueError(f"do_sample={sample} contradicts temperature={temperature}: the latter is enough")
    return temperature


def _stop_ids(given: Mapping[str, Any], folder: Path, tokenizer: Tokenizer | None) -> tuple[int, ...]:
    value = given.get("eos_token_id")
    if value is None:
        config = read_json(folder / "config.json")
        value = config.get("eos_token_id", config.get("text_config", {}).get("eos_token_id"))
    ids = () if value is None else _as_ids(value)
    if tokenizer is not None:
        tokenizer.check_ids(ids)
        ids = (*ids, *tokenizer.eos_ids)
    return tuple(dict.fromkeys(ids))


def _as_ids(value: int | Sequence[int]) -> tuple[int, ...]:
    ids = tuple(value) if isinstance(value, list | tuple) else (value,)
    for index in ids:
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or index < 0:
            raise ValueError(f"eos_token_id has to be a token id or a list of them, not {value!r}")
    return tuple(dict.fromkeys(int(index) for index in ids))


def _number(given: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = given.get(key, default)
    if value is default:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or kind(value) != value:
        raise ValueError(f"{key} has to be {'a whole number' if kind is int else 'a number'}, not {value!r}")
    return kind(value)
