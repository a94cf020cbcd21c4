"""Generation: prompts in, text out, with any method; the front door of the package."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sbjax.draft_length import resolve_draft_length
from sbjax.engine import RUNNING, Engine, State
from sbjax.generation_config import GenerationDefaults, resolve
from sbjax.interrupt import Interrupt
from sbjax.language_model import LanguageModel, Params
from sbjax.loops import check_placement, loop_of
from sbjax.methods import Autoregressive, Method, SpS
from sbjax.noise import KeyedNoise
from sbjax.predictor import Predictor
from sbjax.prompts import Prompt, token_lists
from sbjax.recording import Recorder
from sbjax.results import Result, collect
from sbjax.scores import Sampling
from sbjax.start import start
from sbjax.statistics import summary
from sbjax.streaming import Watch
from sbjax.text import StopStrings, Tokenizer

_DEFAULT_NEW_TOKENS = 256
_ROUNDS_A_CALL = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """A language model ready to be used: functions, parameters, and where there is one a tokenizer.

    Attributes:
      model: the pure functions.
      params: their parameters.
      tokenizer: None if prompts and results are token ids.
      defaults: what the checkpoint says about generation.
    """

    model: LanguageModel
    params: Params
    tokenizer: Tokenizer | None = None
    defaults: GenerationDefaults = dataclasses.field(default_factory=GenerationDefaults)


def generate(
    target: Model,
    prompts: Prompt | Sequence[Prompt],
    *,
    draft: Model | None = None,
    method: Method | None = None,
    predictor: Predictor | None = None,
    rule: str = "match",
    max_new_tokens: int | None = None,
    samples: int = 1,
    seed: int = 0,
    row_ids: Sequence[int] | None = None,
    log_probs: bool = False,
    on_text: Callable[[int, str], Any] | None = None,
    recorder: Recorder | None = None,
    **settings: Any,
) -> Result:
    """Continues prompts with the target's text; method and draft only decide how fast.

    Ctrl-C ends the run and returns what is there.

    Args:
      target: the model whose text is wanted.
      prompts: a text, chat messages, token ids, or a list of such.
      draft: the model that guesses ahead, with the target's tokenizer.
      method: how to decode; None is ``SpS()`` with a draft and ``Autoregressive()`` without. Draft length
        "auto" is measured first, see ``resolve_draft_length``.
      predictor: H-RAD's, which methods with ``features`` need and others refuse; trained for this pair.
      rule: "match" (the default: the text is that of plain decoding with the same seed), "token" or
        "block" (the same law, another text).
      max_new_tokens: tokens to generate at most, for every row; None takes the checkpoint's, or up to 256.
      samples: continuations a prompt.
      seed: seed of all chance.
      row_ids: an id for each of ``samples * len(prompts)`` rows; text depends on target, prompt, seed and
        row id alone. None counts from 0.
      log_probs: whether to return the log-probability of every token.
      on_text: called as ``on_text(row, text)`` whenever a row has new text that is certain.
      recorder: runs the rounds one by one and notes what happens, see ``Recorder``.
      **settings: temperature, top_k, top_p (each one number, or one a row), stop_strings, eos_token_id and
        the other names of ``generation_config.resolve``.

    Returns:
      Texts, tokens, why each row ended, and statistics.

    Raises:
      ValueError: if a setting is out of range, a request does not fit, or the models do not go together.
    """
    wanted = resolve(target.defaults, {**settings, "max_new_tokens": max_new_tokens})
    stop = StopStrings(wanted.stop_strings)
    if target.tokenizer is None and (on_text is not None or stop.strings):
        raise ValueError("stop strings and on_text need text, but the target has no tokenizer")
    ids = token_lists(prompts, target.tokenizer, _vocab_size(target))
    rows = _positive("samples", samples) * len(ids)
    engine = _engine(target, draft, method, rule, log_probs, rows)
    params = {"target": target.params, "draft": None if engine.draft is None else draft.params}
    params |= _predictor(engine, target, predictor)
    check_placement(engine, params, recorder is not None)
    begin = time.perf_counter()
    state = start(
        engine,
        params,
        ids,
        _new_tokens(engine, ids, wanted.max_new_tokens),
        sampling=Sampling.create(rows, wanted.temperature, wanted.top_k, wanted.top_p),
        noise=_noise(seed, row_ids, rows),
        stop_ids=[index for index in wanted.stop_ids if index < engine.vocab_size],
        samples=samples,
    )
    watch = _watch(target, stop, state, on_text)
    jax.block_until_ready(state)
    middle = time.perf_counter()
    state = _decode(engine, params, state, watch, recorder)
    end = time.perf_counter()
    found = collect(state, [len(prompt) for prompt in ids], samples, target.tokenizer, watch, stop)
    return Result(found, summary(state.statistics), middle - begin, end - middle)


def _vocab_size(target: Model) -> int:
    """The real vocabulary; without the draft's width, since a draft must not change what the target says."""
    width = target.model.vocab_size
    return width if target.tokenizer is None else min(width, target.tokenizer.vocab_size)


def _engine(
    target: Model, draft: Model | None, method: Method | None, rule: str, log_probs: bool, rows: int
) -> Engine:
    """The static part; refuses a pair that does not go together, measures it for draft length "auto"."""
    if method is None:
        method = Autoregressive() if draft is None else SpS()
    used = draft if method.draft_length else None
    if used is not None and target.tokenizer is not None and used.tokenizer is not None:
        target.tokenizer.require_same(used.tokenizer)
    drafter, draft_params = (None, None) if used is None else (used.model, used.params)
    method = resolve_draft_length(method, target.model, target.params, drafter, draft_params, rows=rows)
    return Engine(target.model, drafter, method, _vocab_size(target), rule=rule, log_probs=log_probs)


def _predictor(engine: Engine, target: Model, predictor: Predictor | None) -> dict[str, Params]:
    """The predictor's entry among the parameters, if the method has one; refuses one that does not fit."""
    if predictor is not None:
        predictor.require_fit(engine, target.params)
        return {"predictor": predictor.params}
    if features := engine.method.features:
        name = type(engine.method).__name__
        raise ValueError(
            f"{name}(features={features}) needs a predictor (sbjax.load_predictor), or features=0"
        )
    return {}


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")
    return int(value)


def _new_tokens(engine: Engine, ids: Sequence[Sequence[int]], max_new_tokens: int | None) -> list[int]:
    """New tokens a prompt: what was asked for, or as much of the default as the context has room for."""
    if max_new_tokens is not None:
        return [_positive("max_new_tokens", max_new_tokens)] * len(ids)
    return [max(1, min(_DEFAULT_NEW_TOKENS, engine.target.max_length - len(prompt))) for prompt in ids]


def _noise(seed: int, row_ids: Sequence[int] | None, rows: int) -> KeyedNoise:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer in [0, 2**32), got {seed!r}")
    ids = np.arange(rows) if row_ids is None else np.asarray(row_ids)
    if ids.shape != (rows,) or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= 2**32:
        raise ValueError(f"row_ids must be {rows} integers in [0, 2**32), got {row_ids!r}")
    return KeyedNoise.create(jnp.full(rows, seed, jnp.uint32), jnp.asarray(ids.astype(np.uint32)))


def _watch(target: Model, stop: StopStrings, state: State, on_text) -> Watch | None:
    """What looks at the text while it comes, where something has to."""
    if on_text is None and not stop.strings:
        return None
    return Watch(target.tokenizer, stop, np.asarray(state.length), on_text)


def _decode(engine: Engine, params, state: State, watch: Watch | None, recorder: Recorder | None) -> State:
    """Calls the compiled loop until all rows have ended; looks at the text in between."""
    rounds, loop = jnp.int32(_ROUNDS_A_CALL if watch is None else 1), loop_of(params)
    step = recorder.step if recorder is not None else lambda *run_so_far: loop(*run_so_far, rounds)
    with Interrupt() as interrupt:
        while not interrupt.pressed and np.any(np.asarray(state.status) == RUNNING):
            state = step(engine, params, state)
            if watch is not None:
                state = state.replace(status=watch.look(state))
    if watch is not None:
        watch.finish()
    return state
