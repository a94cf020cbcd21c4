"""Nested dicts of parameters by their paths."""

from collections.abc import Mapping
from typing import Any

Path = tuple[str, ...]
"""Keys into the nested dict of parameters."""


def nest(leaves: Mapping[Path, Any]) -> dict[str, Any]:
    """Builds the nested dict in which ``leaves[path]`` lies at ``path``."""
    tree: dict[str, Any] = {}
    for (*parents, last), leaf in leaves.items():
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = leaf
    return tree


def leaf_at(tree: Mapping[str, Any], path: Path) -> Any:
    """The leaf of a nested dict at ``path``."""
    for key in path:
        tree = tree[key]
    return tree
