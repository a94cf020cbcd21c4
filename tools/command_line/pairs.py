"""From flags and configuration files to loaded models and a method."""

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sbjax
from command_line.flags import given
from sbjax.configuration import ModelSource, load_config, make_method


@dataclasses.dataclass(frozen=True)
class Pair:
    """What a tool works with.

    Attributes:
      target: the model whose text is wanted.
      draft: None where the method has none.
      method: how to decode.
      sampling: temperature, top_k and top_p of the configuration, those that it has.
      predictor: H-RAD's, or None.
    """

    target: sbjax.Model
    draft: sbjax.Model | None
    method: sbjax.Method
    sampling: Mapping[str, Any]
    predictor: sbjax.Predictor | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """A pair that is named but not loaded; attributes as in ``Pair``."""

    target: Path
    draft: Path | None
    method: sbjax.Method
    sampling: Mapping[str, Any]
    dtype: str | None
    predictor: Path | None = None

    def load(self) -> Pair:
        """Loads the models that the method needs, the predictor first: it is small."""
        predictor = None if self.predictor is None else sbjax.load_predictor(self.predictor)
        target = sbjax.load(self.target, self.dtype)
        draft = sbjax.load(self.draft, self.dtype) if self.method.draft_length else None
        return Pair(target, draft, _with_features(self.method, predictor), self.sampling, predictor)


def plan_pair(options: argparse.Namespace) -> Plan:
    """Reads the flags of ``flags.add_models`` and, where the tool has them, ``flags.add_method``.

    Everything is checked that can be before gigabytes are read.

    Raises:
      ValueError: a model, a method or a setting is missing or unknown; the message names it.
    """
    config = None if options.config is None else load_config(options.config)
    target = options.target or (config and config.target)
    draft = options.draft or (config and config.draft)
    if not target:
        raise ValueError("no model is named: pass --config or --target")
    wanted = getattr(options, "method", None)
    name, settings = wanted or ("SpS" if draft else "Autoregressive"), {}
    if config is not None and wanted in (None, config.method.name):
        name, settings = config.method.name, dict(config.method.settings)
    method = make_method(name, {**settings, **_method_settings(options)})
    if method.draft_length and not draft:
        raise ValueError(f"{name} needs a draft model: pass --draft, or --method Autoregressive")
    return Plan(
        find_folder(target, options.checkpoints),
        find_folder(draft, options.checkpoints) if draft else None,
        method,
        {} if config is None else config.sampling,
        options.dtype or (config and config.dtype),
        getattr(options, "predictor", None),
    )


def _method_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of the method that the command line names, each of them once."""
    names = ("draft_length", "branches", "hedge", "epsilon")
    settings = given(**{name: getattr(options, name, None) for name in names})
    for name, value in getattr(options, "method_set", ()):
        if name in settings:
            raise ValueError(f"{name} is set twice")
        settings[name] = value
    return settings


def _with_features(method: sbjax.Method, predictor: sbjax.Predictor | None) -> sbjax.Method:
    """The method with the features that a predictor reads, if it has none and can have some."""
    names = [field.name for field in dataclasses.fields(method)]
    if predictor is None or "features" not in names or method.features:
        return method
    return dataclasses.replace(method, features=predictor.config.features)


def find_folder(source: ModelSource | str, checkpoints: Path) -> Path:
    """The folder of a model: as given, or where a hub id was converted to.

    Nothing is downloaded: that is for ``tools/convert_hf.py``.

    Raises:
      ValueError: there is no such folder; says what to run.
    """
    if isinstance(source, ModelSource):
        if source.folder is not None:
            return source.folder
        source = source.hub
    if (folder := Path(source).expanduser()).is_dir():
        return folder
    if str(source).count("/") != 1 or str(source).startswith("."):
        raise ValueError(f"{source}: there is no such folder")
    local = checkpoints / str(source).split("/")[1]
    if local.is_dir():
        return local
    raise ValueError(
        f"{source}: neither a folder nor converted yet; if it is a model of the Hugging Face hub, run: "
        f"python tools/convert_hf.py {source} {local}"
    )
