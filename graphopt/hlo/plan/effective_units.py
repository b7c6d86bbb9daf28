"""Units of nodes once native loops have claimed what they contain, and regions refused what they cannot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.decisions import Decisions
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.graph.walks import roots_around
from graphopt.machine import UnitKind


def demoted(graph: Graph, decisions: Decisions) -> NDArray[np.intp]:
    """Nodes decided native that no region can contain, or something fused into them, as they are now."""
    native = np.array([unit.kind is UnitKind.NATIVE for unit in graph.units], np.bool_)
    out = native[decisions.unit] & ~graph.regional
    for node in np.flatnonzero(~graph.regional & decisions.fuse).tolist():
        for root in roots_around(graph, decisions.fuse, node):
            out[root] |= native[decisions.unit[root]] and not native[graph.default.unit[root]]
    return np.flatnonzero(out)


def effective_units(graph: Graph, decisions: Decisions) -> list[int]:
    """Unit of every node once native loops and branches have claimed what they contain."""
    unit: list[int] = decisions.unit.tolist()
    for node in demoted(graph, decisions).tolist():
        unit[node] = int(graph.default.unit[node])
    native = [i for i, u in enumerate(graph.units) if u.kind is UnitKind.NATIVE]
    for computation in reversed(graph.computations):
        if computation.caller is not None and unit[computation.caller] in native:
            size = computation.end - computation.first
            unit[computation.first : computation.end] = [unit[computation.caller]] * size
    return unit


def native_calls(graph: Graph, decisions: Decisions) -> frozenset[int]:
    """Loops and branches that were decided native themselves."""
    callers = {c.caller for c in graph.computations if c.caller is not None}
    units = decisions.unit
    return frozenset(
        n for n in callers if graph.units[units[n]].kind is UnitKind.NATIVE and graph.regional[n]
    )
