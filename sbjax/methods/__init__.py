"""One file a method; a method is only a policy of the round."""

from sbjax.methods.adaedl import AdaEDL
from sbjax.methods.autoregressive import Autoregressive
from sbjax.methods.base import Method
from sbjax.methods.lookahead import Lookahead
from sbjax.methods.pearl import PEARL
from sbjax.methods.prompt_lookup import PromptLookup
from sbjax.methods.specbranch import SpecBranch
from sbjax.methods.sps import SpS

__all__ = ["PEARL", "AdaEDL", "Autoregressive", "Lookahead", "Method", "PromptLookup", "SpS", "SpecBranch"]
