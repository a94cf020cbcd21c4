"""From prompts to a prefilled state: shapes are bucketed, so that later requests compile nothing new."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from sbjax.cache import KVCache
from sbjax.engine import Engine, State, create_state
from sbjax.home import apart, entered, home_of, place, place_cache
from sbjax.language_model import Params
from sbjax.mesh import cache_sharding
from sbjax.noise import KeyedNoise
from sbjax.prefill import prefill
from sbjax.scores import Sampling

PREFILL_CHUNK = 32
"""Tokens a prefill forward: wide enough to be bound by arithmetic, narrow enough to waste little."""

_STOP_IDS = 8


def bucket(slots: int) -> int:
    """Rounds a number of cache slots up: to 128 up to 1024, then to an eighth of the power of two above."""
    step = 128 if slots <= 1024 else 1 << ((slots - 1).bit_length() - 3)
    return -(-slots // step) * step


def start(
    engine: Engine,
    params: dict[str, Params],
    prompts: Sequence[Sequence[int]],
    max_new_tokens: Sequence[int],
    *,
    sampling: Sampling,
    noise: KeyedNoise,
    stop_ids: Sequence[int] = (),
    samples: int = 1,
    slots: int | None = None,
) -> State:
    """Lays out the state of a run and reads the prompts into the caches.

    Args:
      engine: the static part.
      params: ``{"target": ..., "draft": ...}``.
      prompts: token ids of every prompt, none empty.
      max_new_tokens: for every prompt, how many tokens to generate at most.
      sampling: settings of ``B = samples * len(prompts)`` rows; rows of one prompt are neighbours.
      noise: chance of the rows.
      stop_ids: tokens that end a row.
      samples: rows a prompt; each prompt is read only once.
      slots: ``S``; None takes the smallest bucket that fits.

    Returns:
      A state in which only the last token of every prompt is pending.

    Raises:
      ValueError: if a request does not fit into the target's context or the given slots.
    """
    lengths = np.array([len(prompt) for prompt in prompts])
    limits = lengths + np.asarray(max_new_tokens)
    slots = _slots(engine, lengths, limits, slots)
    lengths, limits = lengths.astype(np.int32), limits.astype(np.int32)
    text = np.zeros((len(prompts), slots), np.int32)
    for row, prompt in zip(text, prompts, strict=True):
        row[: len(prompt)] = prompt
    rows = np.repeat(np.arange(len(prompts)), samples)
    caches = _read_prompts(engine, params, jnp.asarray(text), jnp.asarray(lengths), samples)
    state = create_state(
        engine,
        jnp.asarray(text[rows]),
        jnp.asarray(lengths[rows]),
        jnp.asarray(limits[rows]),
        jnp.asarray(_stop_table(stop_ids, len(rows))),
        sampling,
        noise,
        caches["target"],
        caches.get("draft"),
    )
    return _place(state, params)


def _place(state: State, params: dict[str, Params]) -> State:
    """Puts the run where the parameters are, as every later state will be; otherwise the second call of
    the loop compiles again. With models apart all but the target's cache is on the draft's side.
    """
    home = home_of(params["draft"] if apart(params) else params["target"])
    small = place(state.replace(target=None, draft=None), home, state.text.shape[0])
    return small.replace(target=state.target, draft=state.draft)


def _slots(engine: Engine, lengths: np.ndarray, limits: np.ndarray, slots: int | None) -> int:
    """The number of cache slots; refuses what does not fit before anything is computed."""
    context = engine.target.max_length
    for index in np.flatnonzero(limits > context):
        raise ValueError(
            f"prompt {index} has {lengths[index]} tokens and asks for {limits[index] - lengths[index]} more, "
            f"but the target's context is {context}: shorten the prompt or max_new_tokens"
        )
    needed = int(limits.max()) + engine.slack
    if slots is None:
        return bucket(needed)
    if slots < needed:
        raise ValueError(f"the request needs {needed} cache slots, {slots} were given")
    return slots


def _stop_table(stop_ids: Sequence[int], rows: int) -> np.ndarray:
    """``[B, E]``, with ``E`` rounded up so that another number of stop ids keeps the shape."""
    width = max(_STOP_IDS, -(-len(stop_ids) // _STOP_IDS) * _STOP_IDS)
    table = np.full((rows, width), -1, np.int32)
    table[:, : len(stop_ids)] = np.asarray(stop_ids, np.int32)
    return table


def _read_prompts(
    engine: Engine, params: dict[str, Params], text, length, samples: int
) -> dict[str, KVCache]:
    """Fills a cache for each model, each prompt once, then one copy a sample."""
    models = {"target": engine.target}
    if engine.method.draft_length:
        models["draft"] = engine.draft
    caches = {}
    for name, model in models.items():
        sharding = home = home_of(params[name])
        if isinstance(home, Mesh):
            sharding = cache_sharding(home, text.shape[0], model.cache_spec.kv_heads)
        cache = KVCache.create(model.cache_spec, *text.shape, sharding=sharding)
        here = place((text, length), home, text.shape[0])
        with entered(params[name]):
            cache = prefill(model, params[name], cache, *here, chunk=PREFILL_CHUNK)
        if samples > 1:
            cache = jax.tree.map(lambda leaf: jnp.repeat(leaf, samples, axis=0), cache)
        caches[name] = place_cache(cache, home)
    return caches
