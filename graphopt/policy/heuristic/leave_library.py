"""Short reductions of the kernel library, which a loop kernel computes sooner than the library is called."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.costs.elements import library_reduced_ns, reduced_ns
from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.machine import UnitKind, unit_index

LIBRARY_SHARE: Final = 0.7
"""Part of the library's time below which a loop kernel takes over. The call also wakes worker threads, which
is not in the estimate."""


def leave_library(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Computes reductions in loop kernels where those are faster than the kernel library.

    Args:
        graph: of the program.
        model: its costs.
        decisions: changed in place.
    """
    loop, library = (unit_index(graph.units, k) for k in (UnitKind.LOOP, UnitKind.LIBRARY))
    called = ~decisions.fuse & (decisions.unit == library) & graph.masks.unit[:, loop]
    for root in np.flatnonzero(called).tolist():
        members = model.members(decisions.fuse, root)
        if _is_faster_in_loop(graph, members, root):
            decisions.unit[root] = loop


def _is_faster_in_loop(graph: Graph, members: list[int], root: int) -> bool:
    """True for one reduction, with code around it that a loop computes no more often than the library."""
    reductions = [node for node in members if graph.ops[node].name == "reduce"]
    if len(reductions) != 1 or any(graph.ops[node].name == "dot" for node in members):
        return False
    (node,) = reductions
    if graph.elements[node] != graph.elements[root]:
        return False
    read = float(graph.elements[graph.operand_lists[node][0]])
    return read * reduced_ns(graph, node) < LIBRARY_SHARE * library_reduced_ns(graph, node)
