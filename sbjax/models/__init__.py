"""Decoder-only language models: one implementation, configured by family."""

from sbjax.models.config import DecoderConfig, LayerConfig, UnsupportedModel
from sbjax.models.families import from_hf_config, weight_table

__all__ = ["DecoderConfig", "LayerConfig", "UnsupportedModel", "from_hf_config", "weight_table"]
