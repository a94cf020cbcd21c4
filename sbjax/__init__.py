"""Exact, branch-parallel speculative decoding in JAX.

This list is closed: what is not named here may change without notice.
"""

from sbjax.cache import KVCache
from sbjax.checkpoints import CheckpointError, convert, export
from sbjax.engine import Engine, State
from sbjax.generate import Model, generate
from sbjax.generation_config import GenerationDefaults, UnsupportedSampling
from sbjax.language_model import ApplyModel, CacheSpec, Forward, LanguageModel
from sbjax.loading import load, load_default_pair, load_default_predictor
from sbjax.loops.one_program import run
from sbjax.methods import Autoregressive, Method, SpS
from sbjax.models import DecoderModel, UnsupportedModel, from_hf_config
from sbjax.noise import KeyedNoise, ScriptedNoise
from sbjax.predictor import Predictor, PredictorConfig, load_predictor
from sbjax.results import Generation, Result
from sbjax.scores import Sampling
from sbjax.start import start
from sbjax.statistics import Statistics, summary
from sbjax.text import Tokenizer

__version__ = "0.1.0"

__all__ = [
    "ApplyModel",
    "Autoregressive",
    "CacheSpec",
    "CheckpointError",
    "DecoderModel",
    "Engine",
    "Forward",
    "Generation",
    "GenerationDefaults",
    "KVCache",
    "KeyedNoise",
    "LanguageModel",
    "Method",
    "Model",
    "Predictor",
    "PredictorConfig",
    "Result",
    "Sampling",
    "ScriptedNoise",
    "SpS",
    "State",
    "Statistics",
    "Tokenizer",
    "UnsupportedModel",
    "UnsupportedSampling",
    "convert",
    "export",
    "from_hf_config",
    "generate",
    "load",
    "load_default_pair",
    "load_default_predictor",
    "load_predictor",
    "run",
    "start",
    "summary",
]
