"""What is recorded with: both models, SpecBranch with whole lines as trunks, and the prompts."""

import argparse
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
from command_line.flags import given
from command_line.pairs import plan_pair
from pair_training.corpus import standard_library
from rich.console import Console

import sbjax
from hrad_training import prompts
from sbjax.language_model import Params
from sbjax.methods import SpecBranch


@dataclasses.dataclass(frozen=True)
class Setup:
    """A pair and how it is run.

    Attributes:
      names: what target and draft are called.
      engine: the static part.
      params: of target and draft.
      tokenizer: of both.
    """

    names: dict[str, str]
    engine: sbjax.Engine
    params: dict[str, Params]
    tokenizer: sbjax.Tokenizer

    @property
    def method(self) -> SpecBranch:
        """How rounds are run: whole lines are trunks, since no confidence is too low."""
        return self.engine.method

    @property
    def width(self) -> int:
        """``D`` of the target."""
        token = jax.ShapeDtypeStruct((), jnp.int32)
        return jax.eval_shape(self.engine.target.embed, self.params["target"], token).shape[-1]


def load_setup(options: argparse.Namespace, console: Console) -> Setup:
    """Loads the pair that the command line names.

    Raises:
      ValueError: a model is missing, the two do not go together, or the method has no lines to record.
    """
    plan = plan_pair(argparse.Namespace(**vars(options) | {"method": "SpecBranch"}))
    changes = given(branches=options.branches, hedge=options.hedge, head_start=options.head_start)
    method = dataclasses.replace(plan.method, **changes, features=options.features, epsilon=0.0)
    if method.draft_length == "auto":
        raise ValueError('rounds are recorded with one draft length, not "auto": pass --draft-length')
    if method.draft_length < 2:
        raise ValueError("a draft length of 1 leaves no lines to decide about: pass a larger --draft-length")
    with console.status("loading the models"):
        pair = plan.load()
    target, draft = pair.target, pair.draft
    if target.tokenizer is None or draft.tokenizer is None:
        raise ValueError(f"{plan.target} and {plan.draft} need a tokenizer each")
    target.tokenizer.require_same(draft.tokenizer)
    vocab_size = min(target.model.vocab_size, target.tokenizer.vocab_size)
    return Setup(
        {"target": _name(plan.target), "draft": _name(plan.draft)},
        # One width: with whole lines as trunks some row has a long one in nearly every round.
        sbjax.Engine(target.model, draft.model, method, vocab_size, widths=(method.line_length,)),
        {"target": target.params, "draft": draft.params},
        target.tokenizer,
    )


def _name(folder: Path) -> str:
    return f"{folder.resolve().parent.name}/{folder.name}"


def choose_prompts(options: argparse.Namespace, tokenizer: sbjax.Tokenizer) -> prompts.Prompts:
    """The prompts that the command line asks for.

    Raises:
      ValueError: there are none, or a file is not readable as prompts.
    """
    shared = {"count": options.prompts, "seed": options.seed}
    if options.prompt_file:
        return prompts.from_files(
            options.prompt_file,
            tokenizer,
            field=options.field,
            chat=options.chat,
            longest=options.prompt_tokens or 512,
            **shared,
        )
    folder = options.source or standard_library()
    return prompts.from_sources(folder, tokenizer, longest=options.prompt_tokens or 64, **shared)
