"""Special and added tokens as the files beside a checkpoint's vocabulary declare them.

Follows what transformers reads when it loads a tokenizer: tokenizer_config.json first; the older files
special_tokens_map.json and added_tokens.json only where the configuration has no `added_tokens_decoder`.
"""

import dataclasses
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from sbjax.json_file import read_json

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """What a checkpoint folder says about its special and added tokens.

    Attributes:
      config: tokenizer_config.json.
      named: tokens with a role, e.g. `eos_token`; chat templates see them under these names.
      extra: further special tokens without a role.
      added: tokens with the id the folder gives them.
    """

    config: dict[str, Any]
    named: dict[str, AddedToken]
    extra: tuple[AddedToken, ...]
    added: dict[int, AddedToken]

    @classmethod
    def from_folder(cls, folder: Path) -> "SpecialTokens":
        """Reads tokenizer_config.json, and the older files where they still count.

        Args:
          folder: a checkpoint folder; every file may be missing.

        Raises:
          ValueError: a file is damaged or declares something that is not a token.
        """
        config = read_json(folder / "tokenizer_config.json")
        declared = dict(config)
        has_ids = "added_tokens_decoder" in config
        if not has_ids:
            declared.update(read_json(folder / "special_tokens_map.json"))
        named, extra = _named(declared), _extra(declared)
        if has_ids:
            added = {int(index): _token(value) for index, value in config["added_tokens_decoder"].items()}
        else:
            special = {token.content for token in (*named.values(), *extra)}
            added = {
                index: AddedToken(content, special=content in special, normalized=content not in special)
                for content, index in read_json(folder / "added_tokens.json").items()
            }
        return cls(config, named, extra, dict(sorted(added.items())))

    def missing_from(self, known: set[str]) -> list[AddedToken]:
        """The named and extra tokens whose strings are not in `known`, each once, in order of declaration."""
        candidates = {token.content: token for token in (*self.named.values(), *self.extra)}
        return [token for content, token in candidates.items() if content not in known]


def _named(declared: dict[str, Any]) -> dict[str, AddedToken]:
    values = {key: value for key, value in declared.items() if key.endswith("_token")}
    if isinstance(declared.get("extra_special_tokens"), dict):
        values.update(declared["extra_special_tokens"])
    # `add_bos_token` and the like end the same way but are switches.
    return {key: _token(value, True) for key, value in values.items() if isinstance(value, str | dict)}


def _extra(declared: dict[str, Any]) -> tuple[AddedToken, ...]:
    values = declared.get("extra_special_tokens") or declared.get("additional_special_tokens") or ()
    return () if isinstance(values, dict) else tuple(_token(value, True) for value in values)


def _token(value: str | dict[str, Any], special: bool = False) -> AddedToken:
    if isinstance(value, str):
        return AddedToken(value, special=special, normalized=not special)
    if not isinstance(value, dict) or not isinstance(value.get("content"), str):
        raise ValueError(f"tokenizer_config.json declares {value!r}, which is not a token")
    flags = {flag: value[flag] for flag in _FLAGS if flag in value}
    return AddedToken(value["content"], **(flags | {"special": True} if special else flags))
