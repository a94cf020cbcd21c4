"""Checkpoints: Hugging Face to Orbax and back, and loading of both."""

from sbjax.checkpoints.conversion import convert
from sbjax.checkpoints.errors import CheckpointError
from sbjax.checkpoints.exporting import export
from sbjax.checkpoints.loading import Checkpoint, load

__all__ = ["Checkpoint", "CheckpointError", "convert", "export", "load"]
