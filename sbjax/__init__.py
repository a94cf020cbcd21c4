"""Exact, branch-parallel speculative decoding in JAX.

This list is closed: what is not named here may change without notice.
"""

from sbjax.cache import KVCache
from sbjax.checkpoints import CheckpointError, convert, export
from sbjax.draft_length import resolve_draft_length
from sbjax.engine import Engine, State
from sbjax.generate import Model, generate
from sbjax.generation_config import GenerationDefaults, UnsupportedSampling
from sbjax.language_model import ApplyModel, CacheSpec, Forward, LanguageModel
from sbjax.loading import load, load_default_pair, load_default_predictor
from sbjax.loops.one_program import run
from sbjax.methods import (
    PEARL,
    AdaEDL,
    Autoregressive,
    Lookahead,
    Method,
    PromptLookup,
    SpecBranch,
    SpS,
)
from sbjax.models import DecoderModel, UnsupportedModel, from_hf_config
from sbjax.noise import KeyedNoise, ScriptedNoise
from sbjax.predictor import Predictor, PredictorConfig, load_predictor
from sbjax.recording import Recorder
from sbjax.results import Generation, Result
from sbjax.scores import Sampling
from sbjax.start import start
from sbjax.statistics import Statistics, summary
from sbjax.text import Tokenizer
from sbjax.time_model import Roofline, RunTime, StepTimes, run_time, speed_up
from sbjax.trace import Trace

__version__ = "0.1.0"

__all__ = [
    "PEARL",
    "AdaEDL",
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
    "Lookahead",
    "Method",
    "Model",
    "Predictor",
    "PredictorConfig",
    "PromptLookup",
    "Recorder",
    "Result",
    "Roofline",
    "RunTime",
    "Sampling",
    "ScriptedNoise",
    "SpS",
    "SpecBranch",
    "State",
    "Statistics",
    "StepTimes",
    "Tokenizer",
    "Trace",
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
    "resolve_draft_length",
    "run",
    "run_time",
    "speed_up",
    "start",
    "summary",
]
