"""Ctrl-C between two calls of the compiled loop, so that what is there can be returned."""

import signal
import threading


class Interrupt:
    """Turns the first Ctrl-C into a flag; the second one interrupts at once.

    A context manager. Outside the main thread signals cannot be caught, and nothing is changed.

    Attributes:
      pressed: whether Ctrl-C came.
    """

    def __init__(self):
        """Starts with the flag down."""
        self.pressed = False
        self._before = None

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *_):
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _press(self, *_):
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
