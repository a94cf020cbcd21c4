"""Nested dicts of parameters by their paths."""

from collections.abc import Mapping
from typing import Any


def nest(leaves: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Builds the nested dict in which ``leaves[path]`` lies at ``path``."""
    tree: dict[str, Any] = {}
    for (*parents, last), leaf in leaves.items():
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = leaf
    return tree


def leaf_at(tree: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """The leaf of a nested dict at ``path``."""
    for key in path:
        tree = tree[key]
    return tree
