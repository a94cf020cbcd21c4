"""Loads models by folder, by configuration, or the pair that comes with the package."""

from pathlib import Path

from sbjax import checkpoints
from sbjax.generate import Model
from sbjax.generation_config import GenerationDefaults
from sbjax.predictor import Predictor, load_predictor
from sbjax.text import Tokenizer

DEFAULT_PAIR = Path(__file__).parent / "default_pair"


def load(folder: str | Path, dtype: str | None = None, mesh=None) -> Model:
    """Loads a checkpoint: one that ``tools/convert_hf.py`` wrote, or a Hugging Face folder.

    Args:
      folder: the folder.
      dtype: of the parameters, "float32" or "bfloat16"; None keeps that of the checkpoint.
      mesh: if set, parameters are placed on it straight from the disk.

    Returns:
      A model for ``generate``; its tokenizer is None if the folder has none.

    Raises:
      ValueError: if the folder is no checkpoint, is damaged, or holds a model that is not supported.
    """
    checkpoint = checkpoints.load(folder, dtype=dtype, mesh=mesh)
    tokenizer = None
    if any((checkpoint.folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        tokenizer = Tokenizer.from_folder(checkpoint.folder)
    defaults = GenerationDefaults.from_folder(checkpoint.folder, tokenizer)
    return Model(checkpoint.model, checkpoint.params, tokenizer, defaults)


def load_default_pair() -> tuple[Model, Model]:
    """Loads the small target and its draft that come with the package, in float32."""
    return load(DEFAULT_PAIR / "target", "float32"), load(DEFAULT_PAIR / "draft", "float32")


def load_default_predictor() -> Predictor:
    """Loads H-RAD's predictor for the default pair."""
    return load_predictor(DEFAULT_PAIR / "hrad")
