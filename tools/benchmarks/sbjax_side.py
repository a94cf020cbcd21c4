"""sbjax in a worker process."""

import argparse
from collections.abc import Mapping
from typing import Any

import sbjax
from benchmarks.decoding import Decoder
from benchmarks.worker import Handler


def load(options: argparse.Namespace) -> Handler:
    """Loads the models in float32.

    Args:
      options: ``target`` and ``draft``, folders.

    Returns:
      What continues a prompt greedily. Commands: ``prompt`` (token ids), ``max_new_tokens``, ``stop_ids``,
      ``slots``, ``draft_length`` (0 is plain decoding) and ``max_rounds`` where not all are wanted.
      Answers: ``tokens``, ``prefill_seconds``, ``decode_seconds``, ``seconds``, ``statistics``.
    """
    target = sbjax.load(options.target, "float32")
    draft = None if options.draft is None else sbjax.load(options.draft, "float32")

    def handle(command: Mapping[str, Any]) -> dict[str, Any]:
        length = command["draft_length"]
        decoder = Decoder(target, None, sbjax.Autoregressive())
        if length:
            decoder = Decoder(target, draft, sbjax.SpS(draft_length=length))
        optional = {name: command[name] for name in ("max_rounds",) if name in command}
        run = decoder.run(
            [command["prompt"]],
            command["max_new_tokens"],
            slots=command["slots"],
            stop_ids=command["stop_ids"],
            **optional,
        )
        return {
            "tokens": run.tokens[0],
            "prefill_seconds": run.prefill_seconds,
            "decode_seconds": run.decode_seconds,
            "seconds": run.prefill_seconds + run.decode_seconds,
            "statistics": sbjax.summary(run.statistics),
        }

    return handle
