"""Compiling, running, timing and comparing programs under explicit rewrites."""

from graphopt.measure.compiling import Compiled, compile_with
from graphopt.measure.numeric import Difference, compare_outputs
from graphopt.measure.timing import Comparison, compare

__all__ = ["Comparison", "Compiled", "Difference", "compare", "compare_outputs", "compile_with"]
