"""HLO modules as graphs: build, decide, rewrite, verify.

Packages, lowest first; each imports those before it only: module, graph, restructure, legal, plan, emit,
replace. Importing this package loads them all, so that nothing is loaded within a user's compile.
"""

from graphopt.hlo.emit.verify import verify
from graphopt.hlo.graph.build import build_graph
from graphopt.hlo.graph.decisions import DecisionBatch, Decisions, Masks
from graphopt.hlo.graph.fingerprint import fingerprint
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
    "fingerprint",
    "make_masks",
    "restructured",
    "rewrite",
    "settle",
    "verify",
]
