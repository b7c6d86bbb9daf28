"""Compiling, running, timing, comparing and scoring programs under explicit rewrites."""

from graphopt.measure.analytic import AnalyticScorer
from graphopt.measure.compiling import Compiled, compile_lowered, compile_with
from graphopt.measure.numeric import Difference, compare_outputs
from graphopt.measure.scoring import Scorer, Scores
from graphopt.measure.timing import Comparison, compare

__all__ = [
    "AnalyticScorer",
    "Comparison",
    "Compiled",
    "Difference",
    "Scorer",
    "Scores",
    "compare",
    "compare_outputs",
    "compile_lowered",
    "compile_with",
]
