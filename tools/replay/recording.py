"""Recording: the text of plain decoding, and what draft and target said along it."""

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks.decoding import Decoder

import sbjax
from replay.recorded_models import RECORDED, VOCABULARY
from sbjax import scores
from sbjax.noise import KeyedNoise
from sbjax.prefill import prefill
from sbjax.verification import shared_noise

LAYERS, CHUNK = 4, 32


@functools.partial(jax.jit, static_argnames=("model", "vocab_size", "features"), donate_argnames=("cache",))
def _read(model, params, cache, tokens, length, noise, sampling, *, vocab_size: int, features: int):
    """Feeds ``tokens [B, CHUNK]`` behind ``length [B]``: best ids and log-probabilities, or features."""
    positions = length[:, None] + jnp.arange(CHUNK, dtype=jnp.int32)[None]
    out = model.forward(params, tokens, positions, cache.with_length(length), features=features)
    if features:
        return out.features.astype(jnp.float16), out.cache
    logits = model.logits(params, out.hidden)[..., :vocab_size]
    rows = scores.score(logits, shared_noise(noise, positions + 1, vocab_size, sampling).rows, sampling)
    best, ids = jax.lax.top_k(rows, RECORDED)
    return (ids.astype(jnp.int32), best - jax.nn.logsumexp(rows, -1, keepdims=True)), out.cache


def record(
    target: sbjax.Model, draft: sbjax.Model, prompts: list, *, first: int, temperature: float,
    new_tokens: int, slots: int, seed: int = 0,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Decodes prompts together and reads the texts once more with both models.

    Args:
      target: the model whose text is wanted.
      draft: the model whose guesses are wanted.
      prompts: token ids.
      first: row id of the first, the others count on.
      temperature: of all rows.
      new_tokens: tokens a prompt at most.
      slots: of the caches.
      seed: of all chance.

    Returns:
      ``length [R]``, ``script [R, S]``, ``rows [R, S, E]`` and ``features [R, S, LAYERS + 1, D]`` as
      ``recorded_models`` has them, ``S`` being ``new_tokens``.
    """
    plain, ids = Decoder(target, None, sbjax.Autoregressive()), list(range(first, first + len(prompts)))
    run = plain.run(
        prompts, new_tokens, slots=slots, temperature=temperature, seed=seed, row_ids=ids,
        stop_ids=target.defaults.stop_ids,
    )  # fmt: skip
    size = plain.engine.vocab_size
    return _listen(size, target, draft, prompts, run.tokens, ids, temperature, new_tokens, slots, seed)


def _listen(vocab_size, target, draft, prompts, texts, ids, temperature, new_tokens, slots, seed):
    """What both models say along the texts."""
    rows, steps = len(prompts), -(-new_tokens // CHUNK) * CHUNK
    whole = np.zeros((rows, slots), np.int32)
    for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        whole[row, : len(prompt) + len(text)] = prompt + text
    start = np.array([len(prompt) for prompt in prompts], np.int32)
    noise = KeyedNoise.create(jnp.full(rows, seed, jnp.uint32), jnp.array(ids, jnp.uint32))
    sampling = sbjax.Sampling.create(rows, temperature)
    found = {}
    for name, model, features in (("draft", draft, 0), ("target", target, LAYERS)):
        cache = sbjax.KVCache.create(model.model.cache_spec, rows, slots + CHUNK)
        cache = prefill(model.model, model.params, cache, jnp.asarray(whole), jnp.asarray(start), chunk=CHUNK)
        heard = []
        for step in range(0, steps, CHUNK):
            place = start - 1 + step
            columns = np.minimum(place[:, None] + np.arange(CHUNK), slots - 1)
            tokens = np.take_along_axis(whole, columns, 1)
            one, cache = _read(
                model.model, model.params, cache, jnp.asarray(tokens), jnp.asarray(place), noise, sampling,
                vocab_size=vocab_size, features=features,
            )  # fmt: skip
            heard.append(jax.tree.map(np.asarray, one))
        found[name] = jax.tree.map(lambda *leaves: np.concatenate(leaves, 1)[:, :new_tokens], *heard)
    said = np.take_along_axis(whole, np.minimum(start[:, None] + np.arange(new_tokens), slots - 1), 1)
    best_ids, best = found["draft"]
    same = best_ids == said[..., None]
    script = np.where(same.any(-1), same.argmax(-1), VOCABULARY - 1).astype(np.int32)
    embedded = np.asarray(target.model.embed(target.params, jnp.asarray(said)), np.float16)
    return {
        "length": np.array([len(text) for text in texts], np.int32),
        "script": script,
        "rows": best.astype(np.float32),
        "features": np.concatenate([found["target"], embedded[:, :, None]], 2),
    }


def recording(
    path: Path, wanted: dict[str, Any], make: Callable[[], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """What is recorded at ``path``; recorded now by ``make()`` if it is not there yet.

    Args:
      path: the file.
      wanted: what the recording depends on, kept beside it.
      make: records.

    Raises:
      ValueError: the file holds a recording of something else.
    """
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        work = path.with_name(path.name + ".partial.npz")
        np.savez(work, about=np.array(json.dumps(wanted)), **make())
        work.replace(path)
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays.pop("about")))
    if differing := [name for name in wanted if about.get(name) != wanted[name]]:
        raise ValueError(
            f"{path} was recorded with another {', '.join(differing)}: give another --recordings folder, "
            "or remove the file"
        )
    return arrays


def fingerprint(prompts: list[list[int]]) -> str:
    """Tells lists of token ids apart."""
    return hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16]


def weakened(arrays: dict[str, np.ndarray], sigma: float, seed: int = 0) -> dict[str, np.ndarray]:
    """A recording whose draft is worse: normal noise on its log-probabilities of the recorded ids.

    Args:
      arrays: a recording.
      sigma: standard deviation of the noise, in nats; 0 changes nothing.
      seed: of the noise.
    """
    if not sigma:
        return arrays
    rows, script = arrays["rows"].astype(np.float64), arrays["script"]
    worse = rows + sigma * np.random.default_rng(seed).standard_normal(rows.shape)
    mass = np.log(np.exp(rows).sum(-1, keepdims=True))
    worse += mass - np.log(np.exp(worse).sum(-1, keepdims=True))
    order = np.argsort(-worse, -1)
    rank = np.argsort(order, -1)
    known = np.minimum(script, RECORDED - 1)
    moved = np.take_along_axis(rank, known[..., None], -1)[..., 0]
    return {
        **arrays,
        "rows": np.take_along_axis(worse, order, -1).astype(np.float32),
        "script": np.where(script < RECORDED, moved, script).astype(np.int32),
    }
