"""Where continuations go: text on stdout, as it comes or when it is there, and JSON lines."""

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import sbjax


class Output:
    """Writes continuations as they come; a context manager that closes the JSON file.

    Attributes:
      labelled: whether every text gets a line that says which one it is.
    """

    def __init__(self, json_path: Path | None, *, streaming: bool, labelled: bool):
        """Opens the JSON file, so that a path that cannot be written is known before models are loaded.

        Args:
          json_path: file that gets one line a continuation, appended; "-" for stdout instead of texts.
          streaming: whether ``show`` is called, so that texts are not printed again.
          labelled: see the class.
        """
        self.labelled = labelled
        self._streaming = streaming
        self._texts = str(json_path) != "-"
        self._json: IO[str] | None = None
        if json_path is not None:
            self._json = json_path.open("a", encoding="utf-8") if self._texts else sys.stdout
        self._open: dict[int, str] = {}

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_):
        if self._json is not None and self._texts:
            self._json.close()

    def show(self, row: int, text: str, label: str) -> None:
        """Prints new text of a row at once; of several rows whole lines, each with its label."""
        if not self.labelled:
            print(text, end="", flush=True)
            return
        *lines, self._open[row] = (self._open.get(row, "") + text).split("\n")
        for line in lines:
            print(f"[{label}] {line}", flush=True)

    def write(self, generation: sbjax.Generation, label: str, record: Mapping[str, Any]) -> None:
        """Writes a continuation that has ended.

        Args:
          generation: the continuation.
          label: names it among several.
          record: what its JSON line says beside it.
        """
        if self._json is not None:
            line = {**dataclasses.asdict(generation), **record}
            self._json.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._json.flush()
        if self._texts:
            self._print(generation, label)

    def end_lines(self, labels: Mapping[int, str]) -> None:
        """Prints what ``show`` holds of lines that have no end; before ``write``."""
        for row, text in sorted(self._open.items()):
            if text:
                print(f"[{labels[row]}] {text}")
        self._open.clear()

    def _print(self, generation: sbjax.Generation, label: str) -> None:
        if self._streaming:
            if not self.labelled:
                print()
        else:
            if self.labelled:
                print(f"--- {label}: {_why(generation)}")
            # A model without a tokenizer has no text.
            print(generation.text if generation.text is not None else " ".join(map(str, generation.tokens)))
        if generation.log_probs:
            total, count = sum(generation.log_probs), len(generation.log_probs)
            print(f"[log-probability {total:.3f} of {count} tokens, {total / count:.4f} a token]")
        sys.stdout.flush()


def _why(generation: sbjax.Generation) -> str:
    if generation.stop_string is not None:
        return f"{len(generation.tokens)} tokens, then the stop string {generation.stop_string!r}"
    return f"{len(generation.tokens)} tokens, {generation.finish_reason}"
