"""Programs for placement: small ones that run here, and large ones that are only traced."""

from graphopt.corpus.placement.large import LARGE, LargeModel
from graphopt.corpus.placement.small import BRANCHING, CHAINS, PLACEMENT

__all__ = ["BRANCHING", "CHAINS", "LARGE", "PLACEMENT", "LargeModel"]
