"""Compiling, running, timing, comparing and scoring programs under explicit rewrites."""

from graphopt.measure.comparing.numeric import Difference, compare_outputs
from graphopt.measure.comparing.timing import Comparison, compare
from graphopt.measure.compiling.functions import (
    Compiled,
    compile_lowered,
    compile_with,
    modules_of,
)
from graphopt.measure.scoring import Scorer, Scores

__all__ = [
    "Comparison",
    "Compiled",
    "Difference",
    "Scorer",
    "Scores",
    "compare",
    "compare_outputs",
    "compile_lowered",
    "compile_with",
    "modules_of",
]
