"""Which version of an operation runs: that of the platform a program is for.

A kernel is only looked at where its platform is in sight: the device at hand, the mesh of ``jax.set_mesh``,
or what ``tuning.for_device`` says. (Tracing one costs some hundredths of a second for every new shape.)
Which one then runs is decided when the program is lowered, so that a program for the CPU of a TPU's host gets
the reference.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax

from kernels_pallas import tuning

REFERENCE = "reference"
PLATFORMS = {"tpu": "tpu", "gpu": "cuda"}
"""The versions, and jax's names of their platforms."""
KINDS = {"tpu": "TPU", "gpu": "NVIDIA"}
"""How the kinds of their devices begin."""


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
      implementation: one of them by name, "reference", or None: what suits the platform, and the reference
        where a version does not apply.
      *args: arrays.

    Raises:
      ValueError: if the name is unknown, or the version named does not apply to such arrays.
    """
    if implementation == REFERENCE:
        return reference(*args)
    if implementation is not None:
        return _named(operation, versions, implementation, args)(*args)
    kind = tuning.device_kind()
    fitting = {
        PLATFORMS[name]: version.run
        for name, version in versions.items()
        if version.trusted and kind.startswith(KINDS[name]) and version.refusal(*args) is None
    }
    if not fitting:
        return reference(*args)
    return lax.platform_dependent(*args, default=reference, **fitting)


def differentiable(run: Callable[..., Any], reference: Callable[..., Any]) -> Callable[..., Any]:
    """Gives an operation the derivatives of its reference."""
    lifted = jax.custom_jvp(run)

    @lifted.defjvp
    def derivative(primals, tangents):
        return lifted(*primals), jax.jvp(reference, primals, tangents)[1]

    return lifted


def _named(operation: str, versions: dict[str, Version], name: str, args) -> Callable[..., Any]:
    if name not in versions:
        known = ", ".join([REFERENCE, *versions])
        raise ValueError(f"{operation} has no implementation {name!r}: use {known}, or None to choose")
    if reason := versions[name].refusal(*args):
        raise ValueError(f"{operation} for {name} does not apply: {reason}; use implementation=None")
    return versions[name].run
