"""Which layers see a sliding window only, as each family's config.json says it."""

from typing import Any, Literal

from sbjax.models.config import UnsupportedModel
from sbjax.models.fields import size

Rule = Literal["none", "all", "qwen", "gemma"]
"""Who slides: no layer, every layer, the layers past ``max_window_layers``, or all but every n-th."""


def read_windows(config: dict[str, Any], rule: Rule) -> tuple[int | None, ...]:
    """Reads the window of every layer, None where a layer sees everything.

    Args:
      config: the parsed config.json.
      rule: the family's; ``layer_types`` overrides it for Qwen and Gemma.

    Raises:
      UnsupportedModel: for kinds of layers that are not computed here, and for contradictions.
    """
    count = size(config, "num_hidden_layers")
    slides = _by_rule(config, rule, count)
    if config.get("layer_types") is not None:
        slides = _by_name(config, rule, slides)
    if not any(slides):
        return (None,) * count
    window = size(config, "sliding_window", 4096)
    return tuple(window if slide else None for slide in slides)


def _by_rule(config: dict[str, Any], rule: Rule, count: int) -> list[bool]:
    has_window = config.get("sliding_window", 4096) is not None
    match rule:
        case "none":
            return [False] * count
        case "all":
            return [has_window] * count
        case "qwen":
            first = size(config, "max_window_layers", 28, least=0)
            in_force = bool(config.get("use_sliding_window")) and has_window
            return [in_force and layer >= first for layer in range(count)]
        case "gemma":
            every = size(config, "sliding_window_pattern", 6)
            return [(layer + 1) % every != 0 for layer in range(count)]
    raise TypeError(f"unknown rule {rule!r}")


def _by_name(config: dict[str, Any], rule: Rule, by_rule: list[bool]) -> list[bool]:
    """Layers named one by one: what Qwen and Gemma obey, and the others must not contradict."""
    named, count = config["layer_types"], len(by_rule)
    unknown = sorted(set(named) - {"full_attention", "sliding_attention"})
    if unknown:
        raise UnsupportedModel(f"layer_types {', '.join(unknown)}: not a supported form of attention")
    if len(named) != count:
        raise UnsupportedModel(f"layer_types names {len(named)} layers, num_hidden_layers is {count}")
    slides = [name == "sliding_attention" for name in named]
    if rule in ("none", "all") and slides != by_rule:
        raise UnsupportedModel(f"layer_types is not supported for model_type {config['model_type']!r}")
    if rule == "qwen" and any(slides) and not config.get("use_sliding_window"):
        raise UnsupportedModel("layer_types has 'sliding_attention' but use_sliding_window is false")
    return slides
