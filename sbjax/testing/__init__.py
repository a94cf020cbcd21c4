"""For tests of methods and models: fakes with known laws, references that share no code with the engine."""

from sbjax.testing.decoders import small_llama
from sbjax.testing.enumeration import enumerate_law
from sbjax.testing.laws import joint_law, next_law, total_variation
from sbjax.testing.models import ScriptModel, TableModel

__all__ = [
    "ScriptModel",
    "TableModel",
    "enumerate_law",
    "joint_law",
    "next_law",
    "small_llama",
    "total_variation",
]
