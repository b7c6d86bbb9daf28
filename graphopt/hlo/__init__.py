"""HLO modules as graphs: build, decide, rewrite, verify.

`make_masks` is among the names because graphs import it late: here it is loaded before the first compile.
"""

from graphopt.hlo.emit.verify import verify
from graphopt.hlo.graph.build import build_graph
from graphopt.hlo.graph.decisions import DecisionBatch, Decisions, Masks
from graphopt.hlo.graph.graph import Computation, Graph
from graphopt.hlo.legal.rules import make_masks
from graphopt.hlo.replace import Restructured, apply_restructures, restructured, settle
from graphopt.hlo.restructure import RESTRUCTURES
from graphopt.hlo.rewrite import Rewrite, rewrite

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
