"""A process that loads models once and then does what it is told, line by line: JSON in, JSON out.

Two libraries are compared in processes of their own that take turns: only the one that was asked works.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Handler = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_SCRIPT = Path(__file__).resolve().parent.parent / "benchmark.py"
_PATIENCE = 20.0


class Worker:
    """The caller's end; a context manager that ends the process."""

    def __init__(
        self, side: str, target: Path, draft: Path | None, environment: Mapping[str, str] | None = None
    ):
        """Starts the process and waits until its models are loaded.

        Args:
          side: "sbjax" or "transformers".
          target: folder of the target.
          draft: folder of the draft, or None.
          environment: variables to set beside the present ones.

        Attributes:
          ready: what the process says of its start: seconds of its imports and of loading.

        Raises:
          ValueError: it could not start; its own message is on stderr.
        """
        self._side = side
        command = [sys.executable, str(_SCRIPT), "worker", side, "--target", str(target)]
        command += [] if draft is None else ["--draft", str(draft)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **(environment or {})},
        )
        self.ready = self._receive()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Has a command done and waits for its answer."""
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; reading its answer says so
        return self._receive()

    def _receive(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise ValueError(f"the {self._side} process ended with exit code {code}, see its message above")
        return json.loads(line)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_):
        try:
            self._process.stdin.close()
            self._process.wait(_PATIENCE)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def serve(load: Callable[[], Handler]) -> int:
    """The worker's end: loads, says so, and answers commands until its input ends.

    Args:
      load: imports and loads whatever is needed and returns what does the commands.
    """
    # What libraries print must not end up among the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(content: Mapping[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        begin = time.perf_counter()
        handle = load()
        answer({"load_seconds": time.perf_counter() - begin})
        for line in sys.stdin:
            answer(handle(json.loads(line)))
    except KeyboardInterrupt:
        return 130
    return 0
