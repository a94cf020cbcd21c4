"""transformers on torch in a worker process, plain and with assisted generation."""

import argparse
import time
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers.generation.streamers import BaseStreamer

from benchmarks.worker import Handler


class _Clock(BaseStreamer):
    """Notes when tokens come: ``generate`` puts the prompt first, then new tokens."""

    def __init__(self):
        self.times: list[float] = []

    def put(self, value):
        self.times.append(time.perf_counter())

    def end(self):
        pass


def load(options: argparse.Namespace) -> Handler:
    """Loads the models in float32.

    Args:
      options: ``target`` and ``draft``, Hugging Face folders.

    Returns:
      What continues a prompt greedily. Commands: ``prompt`` (token ids), ``max_new_tokens``, ``stop_ids``,
      ``threads``, ``assistant`` (None is plain decoding; else settings of the draft's GenerationConfig,
      none of them for the defaults of the library). Answers: ``tokens``, ``prefill_seconds`` (until the
      first new token), ``decode_seconds``, ``seconds``.
    """
    target = _load(options.target)
    draft = None if options.draft is None else _load(options.draft)

    def handle(command: Mapping[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(command["threads"])
        assistant = {}
        if command["assistant"] is not None:
            # A new one for every prompt: some settings are adapted while they are used.
            draft.generation_config = transformers.GenerationConfig(**command["assistant"])
            assistant = {"assistant_model": draft}
        prompt, clock = torch.tensor([command["prompt"]]), _Clock()
        begin = time.perf_counter()
        with torch.inference_mode():
            out = target.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=_greedy(command),
                streamer=clock,
                **assistant,
            )
        end = time.perf_counter()
        first = clock.times[1]
        return {
            "tokens": out[0, prompt.shape[1] :].tolist(),
            "prefill_seconds": first - begin,
            "decode_seconds": end - first,
            "seconds": end - begin,
        }

    return handle


def _load(folder: str) -> torch.nn.Module:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    # What a checkpoint asks for beside greedy decoding would be another task.
    model.generation_config = transformers.GenerationConfig()
    return model


def _greedy(command: Mapping[str, Any]) -> transformers.GenerationConfig:
    stop_ids = list(command["stop_ids"])
    return transformers.GenerationConfig(
        do_sample=False,
        max_new_tokens=command["max_new_tokens"],
        eos_token_id=stop_ids or None,
        pad_token_id=stop_ids[0] if stop_ids else 0,
    )
