"""One file a method; a method is only a policy of the round."""

from sbjax.methods.autoregressive import Autoregressive
from sbjax.methods.base import Method
from sbjax.methods.sps import SpS

__all__ = ["Autoregressive", "Method", "SpS"]
