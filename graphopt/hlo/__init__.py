"""HLO modules as graphs: build, decide, rewrite, verify.

`make_masks` is among the names because graphs import it late: here it is loaded before the first compile.
"""

from graphopt.hlo.build import build_graph
from graphopt.hlo.decisions import DecisionBatch, Decisions, Masks
from graphopt.hlo.graph import Computation, Graph
from graphopt.hlo.legality import make_masks
from graphopt.hlo.restructure import (
    RESTRUCTURES,
    Restructured,
    apply_restructures,
    restructured,
    settle,
)
from graphopt.hlo.rewrite import Rewrite, rewrite
from graphopt.hlo.verify import verify

__all__ = [
    "RESTRUCTURES",
    "Computation",
    "DecisionBatch",
    "Decisions",
    "Graph",
    "Masks",
    "Restructured",
    "Rewrite",
    "apply_restructures",
    "build_graph",
    "make_masks",
    "restructured",
    "rewrite",
    "settle",
    "verify",
]
