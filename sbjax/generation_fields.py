"""What each field of transformers' GenerationConfig means here: obeyed, refused, or without effect.

A field is refused if it could change the text and is not implemented. Every field has to be in one of the
three tables; a name in none of them is refused too, since it could mean anything.
"""

import dataclasses
from typing import Any

OBEYED = frozenset(
    {"do_sample", "temperature", "top_k", "top_p", "max_new_tokens", "stop_strings", "eos_token_id"}
)


@dataclasses.dataclass(frozen=True)
class Refused:
    """A setting that changes the text and is not implemented.

    Attributes:
      neutral: a value that switches it off. None and empty lists do so for every field.
      sampling_only: it has no part in greedy decoding.
    """

    neutral: Any = None
    sampling_only: bool = False

    def is_off(self, value: Any) -> bool:
        """Whether a value asks for nothing."""
        if value is None or (isinstance(value, list | tuple | dict | set) and not value):
            return True
        return self.neutral is not None and not isinstance(value, str) and value == self.neutral


_OFF = Refused()

REFUSED: dict[str, Refused] = {
    # They look at the text so far: what was drafted would have to be undone in them.
    "repetition_penalty": Refused(1.0),
    "encoder_repetition_penalty": Refused(1.0),
    "no_repeat_ngram_size": Refused(0),
    "encoder_no_repeat_ngram_size": Refused(0),
    "presence_penalty": Refused(0.0),
    "frequency_penalty": Refused(0.0),
    "exponential_decay_length_penalty": _OFF,
    "min_length": Refused(0),
    "min_new_tokens": Refused(0),
    # They forbid, force or favour tokens.
    "bad_words_ids": _OFF,
    "sequence_bias": _OFF,
    "logit_bias": _OFF,
    "suppress_tokens": _OFF,
    "begin_suppress_tokens": _OFF,
    "forced_bos_token_id": _OFF,
    "forced_eos_token_id": _OFF,
    "forced_decoder_ids": _OFF,
    "force_words_ids": _OFF,
    "constraints": _OFF,
    "logits_processor": _OFF,
    "grammar": _OFF,
    "token_healing": Refused(False),
    "watermarking_config": _OFF,
    "guidance_scale": Refused(1.0),
    # They cut the distribution in other ways than top-k and top-p.
    "min_p": Refused(0.0, sampling_only=True),
    "top_h": Refused(None, sampling_only=True),
    "typical_p": Refused(1.0, sampling_only=True),
    "epsilon_cutoff": Refused(0.0, sampling_only=True),
    "eta_cutoff": Refused(0.0, sampling_only=True),
    # Other ways of decoding than one row of picks.
    "num_beams": Refused(1),
    "num_beam_groups": Refused(1),
    "diversity_penalty": Refused(0.0),
    "penalty_alpha": Refused(0.0),
    "dola_layers": _OFF,
    "assistant_ensemble_weight": Refused(0.0),
    # Other limits, and more than one text a prompt.
    "max_time": _OFF,
    "num_return_sequences": Refused(1),
    "remove_invalid_values": Refused(False),
}

_BEAMS = "it is about beam search, which sbjax does not have"
_OUTPUTS = "what is returned is decided by the call, not by the generation settings"
_CACHE = "sbjax always decodes with its own cache"
_SPEED = "it changes how fast transformers decodes, not the text; choose a method of sbjax instead"
_TOKENS = "prompts are never padded and bos tokens come from the tokenizer"
_ENCODER = "it is about encoder-decoder models"
_ORIGIN = "it says where the file comes from"
_LENGTH = "the prompt's share of it is not known here; use max_new_tokens"

WITHOUT_EFFECT: dict[str, str] = {
    "max_length": _LENGTH,
    "max_window_size": _LENGTH,
    "early_stopping": _BEAMS,
    "length_penalty": _BEAMS,
    "low_memory": _BEAMS,
    "renormalize_logits": "softmax and argmax do not depend on a constant added to a row",
    "pad_token_id": _TOKENS,
    "bos_token_id": _TOKENS,
    "chat_format": "the chat template decides the format of a conversation",
    "decoder_start_token_id": _ENCODER,
    "use_cache": _CACHE,
    "cache_implementation": _CACHE,
    "cache_config": _CACHE,
    "max_cache_len": _CACHE,
    "return_legacy_cache": _CACHE,
    "output_attentions": _OUTPUTS,
    "output_hidden_states": _OUTPUTS,
    "output_scores": _OUTPUTS,
    "output_logits": _OUTPUTS,
    "return_dict_in_generate": _OUTPUTS,
    "use_mtp": _SPEED,
    "is_assistant": _SPEED,
    "num_assistant_tokens": _SPEED,
    "num_assistant_tokens_schedule": _SPEED,
    "assistant_confidence_threshold": _SPEED,
    "prompt_lookup_num_tokens": _SPEED,
    "max_matching_ngram_size": _SPEED,
    "assistant_early_exit": _SPEED,
    "assistant_lookbehind": _SPEED,
    "target_lookbehind": _SPEED,
    "speculation_type": _SPEED,
    "compile_config": _SPEED,
    "disable_compile": _SPEED,
    "continuous_batching_config": _SPEED,
    "prefill_chunk_size": _SPEED,
    "transformers_version": _ORIGIN,
    "trust_remote_code": "code that comes with a checkpoint is never run",
}
