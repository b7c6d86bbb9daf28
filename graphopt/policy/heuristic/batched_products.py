"""Products of many small matrices outside native code, which the matrix library takes one after the other.

A call of the library for each matrix takes longer than to multiply it. Written as a multiplication and a
reduction, the whole batch is one loop kernel.
"""

from __future__ import annotations

from typing import Final

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.native import inside_native

MARGIN: Final = 1.5
"""How many times longer the library must take by the estimate."""


def reduce_batches(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Replaces such products where the program gains.

    Args:
        graph: of the program.
        model: its costs.
        decisions: what is native is decided; changed in place.
    """
    native = unit_index(graph.units, UnitKind.NATIVE)
    inside = inside_native(graph, model, decisions)
    chosen = []
    saved = 0.0
    for node, op in enumerate(graph.ops):
        if op.name != "dot" or decisions.unit[node] == native or decisions.restructure[node]:
            continue
        cost = model.product(node)
        if int(graph.computation[node]) in inside or cost.reduced_ns is None:
            continue
        if cost.library_ns > MARGIN * cost.reduced_ns:
            chosen.append(node)
            saved += (cost.library_ns - cost.reduced_ns) * float(graph.executions[node])
    if saved > model.rewriting_ns:
        decisions.restructure[chosen] = CODE["dot-reduce"]
