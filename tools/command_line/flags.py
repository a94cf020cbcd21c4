"""Flags that several tools have. Imports nothing heavy, so that --help is quick."""

import argparse
import json
from pathlib import Path
from typing import Any


def add_models(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say which models to use; ``pairs.load_pair`` reads them."""
    group = parser.add_argument_group("models")
    group.add_argument("--config", type=Path, metavar="TOML", help="a pair, e.g. configs/demo.toml")
    group.add_argument("--target", metavar="FOLDER", help="the model whose text is wanted, over --config")
    group.add_argument("--draft", metavar="FOLDER", help="the model that guesses ahead, over --config")
    group.add_argument(
        "--checkpoints",
        type=Path,
        default=Path("checkpoints"),
        metavar="DIR",
        help="where OWNER/NAME of the hub lies converted, as DIR/NAME (default: %(default)s)",
    )
    group.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        help="of the parameters (default: the config's or the checkpoint's)",
    )


def add_method(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose the method; ``pairs.load_pair`` reads them."""
    group = parser.add_argument_group("method")
    group.add_argument(
        "--method",
        metavar="NAME",
        help="a class of sbjax.methods, e.g. Autoregressive, SpS, AdaEDL, Lookahead, PEARL or SpecBranch; "
        "a wrong name lists all (default: the config's, else SpS where there is a draft)",
    )
    group.add_argument(
        "--draft-length",
        type=draft_length,
        metavar="G",
        help="draft steps a round; auto measures both models and takes the length that fits their speeds",
    )
    group.add_argument("--branches", type=positive, metavar="K", help="of SpecBranch, the main one included")
    group.add_argument("--hedge", metavar="KIND", help="where SpecBranch puts hedges: point or outcomes")
    group.add_argument(
        "--epsilon", type=float, metavar="P", help="confidence below which SpecBranch ends a trunk; 0 never"
    )
    group.add_argument(
        "--method-set",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="another setting of the method, e.g. --method-set target_acceptance=0.8; a wrong name lists all",
    )
    group.add_argument(
        "--predictor",
        type=Path,
        metavar="FOLDER",
        help="H-RAD's predictor for SpecBranch, as tools/train_hrad.py makes it for a pair; the method's "
        "features, where they are 0, become those that it reads",
    )


def positive(text: str) -> int:
    """A whole number of at least one."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def natural(text: str) -> int:
    """A whole number of at least zero."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return value


def draft_length(text: str) -> int | str:
    """A whole number of at least one, or "auto"."""
    return text if text == "auto" else positive(text)


def assignment(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` with a value in JSON, or else text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"NAME=VALUE is expected, got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def first_line(error: BaseException) -> str:
    """An error as one line for stderr."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def given(**settings: Any) -> dict[str, Any]:
    """The settings that are not None."""
    return {name: value for name, value in settings.items() if value is not None}
