"""Configurations of pairs: one TOML file says which target, which draft, which method, which sampling.

name = "qwen2.5-coder"
dtype = "bfloat16"            # of the parameters in memory

[target]
hub = "Qwen/Qwen2.5-Coder-1.5B-Instruct"   # or: folder = "..." (relative to the file)

[draft]                       # left out where the method has no draft model
hub = "Qwen/Qwen2.5-Coder-0.5B-Instruct"

[method]
name = "SpS"                  # the other keys are the settings of the method
draft_length = 5              # or "auto": both models are measured before the run

[sampling]                    # all optional; what is left out is the default of sbjax.generate
temperature = 0.0
"""

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sbjax import methods
from sbjax.methods import Method

DTYPES = ("float32", "bfloat16")


class ConfigurationError(ValueError):
    """A configuration file is not readable as one; the message names the file and the key."""


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """Where a checkpoint comes from; exactly one of the two is set.

    Attributes:
      hub: a Hugging Face hub id, ``owner/name``.
      folder: a local folder, converted or as downloaded; absolute.
    """

    hub: str | None = None
    folder: Path | None = None


@dataclasses.dataclass(frozen=True)
class MethodConfig:
    """A method by name, kept apart from its settings so that a tool can change one of them.

    Attributes:
      name: a class of ``sbjax.methods``.
      settings: its fields; read-only. What is left out keeps the method's default.
    """

    name: str
    settings: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class PairConfig:
    """A target, its draft, and how to decode with them.

    Attributes:
      name: name of the pair.
      target: the model whose text is reproduced.
      draft: the model that guesses, or None.
      dtype: dtype of the parameters in memory.
      method: how to decode; ``make_method`` makes it.
      sampling: settings of ``sbjax.generate``: temperature, top_k, top_p; read-only.
    """

    name: str
    target: ModelSource
    draft: ModelSource | None
    dtype: str
    method: MethodConfig
    sampling: Mapping[str, float | int]


def load_config(path: str | Path) -> PairConfig:
    """Reads the configuration of a pair.

    Args:
      path: a TOML file, see the head of this module.

    Returns:
      The configuration, with folders resolved against the file's own folder.

    Raises:
      ConfigurationError: if the file is not TOML, or a key is unknown, missing or of the wrong kind; the
        message names the key and the file.
      FileNotFoundError: if there is no such file.
    """
    path = Path(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not a TOML file: {error}") from error
    known = ("name", "dtype", "target", "draft", "method", "sampling")
    _check_keys(table, known, required=("name", "dtype", "target", "method"), where="", path=path)
    return PairConfig(
        name=_value(table, "name", str, "", path),
        target=_source(table, "target", path),
        draft=_source(table, "draft", path) if "draft" in table else None,
        dtype=_dtype(table, path),
        method=_method(table, path),
        sampling=_sampling(table, path),
    )


def _source(table: dict, key: str, path: Path) -> ModelSource:
    source = _value(table, key, dict, "", path)
    _check_keys(source, ("hub", "folder"), required=(), where=f"[{key}] ", path=path)
    if len(source) != 1:
        raise ConfigurationError(
            f"{path}: [{key}] needs exactly one of hub and folder, it has {sorted(source)}"
        )
    if "hub" in source:
        return ModelSource(hub=_value(source, "hub", str, f"[{key}] ", path))
    folder = Path(_value(source, "folder", str, f"[{key}] ", path)).expanduser()
    return ModelSource(folder=(path.parent / folder).resolve())


def _dtype(table: dict, path: Path) -> str:
    dtype = _value(table, "dtype", str, "", path)
    if dtype not in DTYPES:
        raise ConfigurationError(f"{path}: dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    return dtype


def make_method(name: str, settings: Mapping[str, Any]) -> Method:
    """Makes a method of ``sbjax.methods`` by the name of its class.

    Args:
      name: the class.
      settings: its fields.

    Raises:
      ValueError: if there is no such method, it has no such setting, or a setting is out of range.
    """
    known = {key: getattr(methods, key) for key in methods.__all__}
    known = {key: kind for key, kind in known.items() if dataclasses.is_dataclass(kind)}
    if name not in known:
        raise ValueError(f"there is no method {name!r}; there are {', '.join(known)}")
    fields = [field.name for field in dataclasses.fields(known[name])]
    if unknown := sorted(set(settings) - set(fields)):
        has = f"it has {', '.join(fields)}" if fields else "it has none"
        raise ValueError(f"{name} has no setting {', '.join(unknown)}; {has}")
    return known[name](**settings)


def _method(table: dict, path: Path) -> MethodConfig:
    """Reads ``[method]``, and makes the method once so that what is wrong is found here."""
    settings = dict(_value(table, "method", dict, "", path))
    name = _value(settings, "name", str, "[method] ", path)
    del settings["name"]
    try:
        make_method(name, settings)
    except ValueError as error:
        raise ConfigurationError(f"{path}: [method] {error}") from error
    return MethodConfig(name=name, settings=MappingProxyType(settings))


def _sampling(table: dict, path: Path) -> Mapping[str, float | int]:
    sampling = dict(_value(table, "sampling", dict, "", path)) if "sampling" in table else {}
    kinds = {"temperature": (int, float), "top_k": int, "top_p": (int, float)}
    _check_keys(sampling, kinds, required=(), where="[sampling] ", path=path)
    return MappingProxyType({key: _value(sampling, key, kinds[key], "[sampling] ", path) for key in sampling})


def _check_keys(table: dict, known: Iterable[str], required: Iterable[str], where: str, path: Path) -> None:
    """Raises for every key that is unknown, and for every one that is missing."""
    unknown = sorted(set(table) - set(known))
    if unknown:
        raise ConfigurationError(
            f"{path}: {where}unknown key {', '.join(unknown)}; known: {', '.join(known)}"
        )
    missing = [key for key in required if key not in table]
    if missing:
        raise ConfigurationError(f"{path}: {where}missing key {', '.join(missing)}")


def _value(table: dict, key: str, kind: type | tuple[type, ...], where: str, path: Path) -> Any:
    """``table[key]``, which must be there and of the given kind (a bool is not a number)."""
    if key not in table:
        raise ConfigurationError(f"{path}: {where}missing key {key}")
    value = table[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        names = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise ConfigurationError(f"{path}: {where}{key} must be {names}, got {value!r}")
    return value
