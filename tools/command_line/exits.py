"""How a tool ends: one line on stderr says why, and the exit code says what kind of end it was."""

import sys
from collections.abc import Callable

from command_line.flags import first_line

DONE, FAILED, INTERRUPTED = 0, 1, 130


class Interrupted(KeyboardInterrupt):
    """Ctrl-C at a good place; the message says what is there and how to go on."""


def guarded(tool: str, work: Callable[[], int], *, interrupted: str = "interrupted", memory: str = "") -> int:
    """Runs the work of a tool.

    Args:
      tool: its name, in front of every message.
      work: returns the exit code.
      interrupted: said at Ctrl-C where the exception says nothing itself.
      memory: what to try where the device may be out of memory; "" lets its error through.

    Returns:
      The exit code: the work's own, 1 if it failed in a way that a message can explain, 130 at Ctrl-C.
    """
    try:
        return work()
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"{tool}: {first_line(error)}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as stopped:
        print(f"{tool}: {str(stopped) or interrupted}", file=sys.stderr)
        return INTERRUPTED
    except RuntimeError as error:
        # Imported late: whoever gets a JaxRuntimeError has jax.
        import jax

        if not (memory and isinstance(error, jax.errors.JaxRuntimeError)):
            raise
        print(f"{tool}: {first_line(error)} (out of memory? try {memory})", file=sys.stderr)
        return FAILED
