"""Rotary embeddings as config.json writes them, in either dialect of transformers.

Version 4 has ``rope_theta`` and ``rope_scaling`` beside each other (Gemma 3 also
``rope_local_base_freq``), version 5 has all of it in ``rope_parameters`` (for Gemma 3 once per
layer type). Where both are there, ``rope_scaling`` wins, as in transformers.
"""

import math
from typing import Any

from sbjax.models.config import UnsupportedModel
from sbjax.models.fields import number
from sbjax.models.rotary import LinearScaling, Llama3Scaling, Rope, YarnScaling

_REFUSED_TYPES = {
    "dynamic": "its keys depend on how long the text was when they were made, so a cache that is rolled "
    "back would hold keys of another length; use 'linear' or 'yarn'",
    "longrope": "it changes all keys at once when the text passes a length, which a cache cannot follow",
    "su": "it is longrope by an older name and changes all keys at once when the text passes a length",
}
_KEYS = {
    "default": set(),
    "linear": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": {
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
    },
}


def read_rope(config: dict[str, Any], max_length: int, default_theta: float = 10_000.0) -> Rope:
    """Reads the one rotary embedding of a model.

    Args:
      config: the parsed config.json.
      max_length: its ``max_position_embeddings``.
      default_theta: what the family assumes where no theta is given.

    Raises:
      UnsupportedModel: for a rope type or a parameter that is not computed here.
    """
    parameters = dict(config.get("rope_scaling") or config.get("rope_parameters") or {})
    parameters.setdefault("rope_theta", number(config, "rope_theta", default_theta))
    if config.get("original_max_position_embeddings") is not None:
        parameters["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    return _rope(parameters, max_length)


def read_rope_by_layer_type(
    config: dict[str, Any], max_length: int, default_thetas: dict[str, float]
) -> dict[str, Rope]:
    """Reads Gemma 3's rotary embeddings, one for full and one for sliding attention.

    Args:
      config: the parsed config.json.
      max_length: its ``max_position_embeddings``.
      default_thetas: layer type to the theta assumed where none is given.

    Raises:
      UnsupportedModel: for a rope type or a parameter that is not computed here.
    """
    nested = dict(config.get("rope_parameters") or {})
    unknown = set(nested) - set(default_thetas)
    if unknown:
        raise UnsupportedModel(
            f"rope_parameters of Gemma 3 has entries for {sorted(unknown)}, not for "
            f"{sorted(default_thetas)} alone"
        )
    older_theta = {"full_attention": "rope_theta", "sliding_attention": "rope_local_base_freq"}
    ropes = {}
    for layer_type, theta in default_thetas.items():
        parameters = dict(nested.get(layer_type) or {})
        if layer_type == "full_attention":
            parameters |= config.get("rope_scaling") or {}
        parameters.setdefault("rope_theta", number(config, older_theta[layer_type], theta))
        ropes[layer_type] = _rope(parameters, max_length)
    return ropes


def rope_length(rope: Rope, max_length: int) -> int:
    """The largest number of positions: YaRN configs may keep the length before the extension."""
    if isinstance(rope.scaling, YarnScaling):
        return max(max_length, int(rope.scaling.factor * rope.scaling.original_length))
    return max_length


def _rope(parameters: dict[str, Any], max_length: int) -> Rope:
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if kind in _REFUSED_TYPES:
        raise UnsupportedModel(f"rope type {kind!r} is not supported: {_REFUSED_TYPES[kind]}")
    if kind not in _KEYS:
        raise UnsupportedModel(f"rope type {kind!r} is not supported, only {', '.join(sorted(_KEYS))}")
    if parameters.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise UnsupportedModel("partial_rotary_factor: rotating a part of the head width is not supported")
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"}
    unknown = sorted(set(parameters) - known - _KEYS[kind])
    if unknown:
        raise UnsupportedModel(
            f"rope type {kind!r} with the parameters {', '.join(unknown)} is not supported"
        )
    theta = number(parameters, "rope_theta")
    return Rope(theta, _scaling(kind, parameters, max_length))


def _scaling(kind: str, parameters: dict[str, Any], max_length: int):
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(number(parameters, "factor"))
    original = number(parameters, "original_max_position_embeddings", max_length)
    if kind == "llama3":
        low, high = number(parameters, "low_freq_factor"), number(parameters, "high_freq_factor")
        if not low < high:
            raise UnsupportedModel(f"rope: low_freq_factor {low} is not below high_freq_factor {high}")
        return Llama3Scaling(number(parameters, "factor"), low, high, original)
    factor = number(parameters, "factor", max_length / original)
    return YarnScaling(
        factor=factor,
        original_length=original,
        attention_factor=_attention_factor(parameters, factor),
        beta_fast=number(parameters, "beta_fast", 32),
        beta_slow=number(parameters, "beta_slow", 1),
        truncate=bool(parameters.get("truncate", True)),
    )


def _attention_factor(parameters: dict[str, Any], factor: float) -> float:
    """YaRN's factor on cosine and sine: as given, or from mscale, or the paper's (eq. 22)."""
    if parameters.get("attention_factor") is not None:
        return number(parameters, "attention_factor")

    def mscale(weight: float = 1.0) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    above, below = parameters.get("mscale"), parameters.get("mscale_all_dim")
    return mscale(above) / mscale(below) if above and below else mscale()
