"""Decoder-only language models: one implementation, configured by family."""

from sbjax.models.config import DecoderConfig, LayerConfig, UnsupportedModel
from sbjax.models.decoder import Decoder, DecoderModel
from sbjax.models.families import from_hf_config
from sbjax.models.weight_names import Weight, weight_table

__all__ = [
    "Decoder",
    "DecoderConfig",
    "DecoderModel",
    "LayerConfig",
    "UnsupportedModel",
    "Weight",
    "from_hf_config",
    "weight_table",
]
