"""Which version of an operation runs: chosen when a program is lowered, by the platform it is lowered for."""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import lax

REFERENCE = "reference"
PLATFORMS = {"tpu": "tpu", "gpu": "cuda"}
"""The versions, and jax's names of their platforms."""


class Version(NamedTuple):
    """One backend's version of an operation.

    Attributes:
      run: has the arguments of the reference.
      refusal: of the same positional arguments; says in a sentence why the version does not apply, or None.
      trusted: whether it runs unasked. A version that no real chip has run yet does not.
    """

    run: Callable[..., Any]
    refusal: Callable[..., str | None]
    trusted: bool = True


def dispatch(
    operation: str,
    reference: Callable[..., Any],
    versions: dict[str, Version],
    implementation: str | None,
    *args: Any,
) -> Any:
    """Runs one version of an operation.

    Args:
      operation: its name, for messages.
      reference: the specification.
      versions: the others, "tpu" and "gpu".
      implementation: one of them by name, "reference", or None: what suits the platform that the program
        is lowered for, and the reference where a version does not apply.
      *args: arrays.

    Raises:
      ValueError: if the name is unknown, or the version named does not apply to such arrays.
    """
    if implementation == REFERENCE:
        return reference(*args)
    if implementation is not None:
        return _named(operation, versions, implementation, args)(*args)
    fitting = {
        PLATFORMS[name]: version.run
        for name, version in versions.items()
        if version.trusted and version.refusal(*args) is None
    }
    if not fitting:
        return reference(*args)
    return lax.platform_dependent(*args, default=reference, **fitting)


def _named(operation: str, versions: dict[str, Version], name: str, args) -> Callable[..., Any]:
    if name not in versions:
        known = ", ".join([REFERENCE, *versions])
        raise ValueError(f"{operation} has no implementation {name!r}: use {known}, or None to choose")
    if reason := versions[name].refusal(*args):
        raise ValueError(f"{operation} for {name} does not apply: {reason}; use implementation=None")
    return versions[name].run
