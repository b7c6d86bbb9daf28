"""Walls, operations that keep a loop from becoming native, and what replaces them."""

from __future__ import annotations

from typing import Final

from graphopt.costs.opaque import is_wall
from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.hlo.restructure import CODE


def opening_code(graph: Graph, node: int) -> int:
    """The restructure that takes a wall away; 0 if none is legal."""
    allowed = graph.masks.restructure[node]
    return next((c for c, row in enumerate(RESTRUCTURES) if row.opens and allowed[c]), 0)


def open_walls(graph: Graph, decisions: Decisions, nodes: range) -> None:
    """Replaces every wall among `nodes`."""
    for node in nodes:
        if is_wall(graph, node):
            decisions.restructure[node] = opening_code(graph, node)


MAX_UNROLLED_ELEMENTS: Final = 1024
"""Largest array in a loop that is written out: beyond, its iterations are long enough."""


def unroll(graph: Graph, decisions: Decisions, loop: int) -> bool:
    """Writes out a short loop inside native code where that is legal and its arrays are small."""
    code = CODE["unroll"]
    if decisions.restructure[loop] == code:
        return True
    if not graph.masks.restructure[loop, code]:
        return False
    bodies = [c for c in graph.computations if c.caller == loop]
    if any(graph.elements[c.first : c.end].max() > MAX_UNROLLED_ELEMENTS for c in bodies):
        return False
    decisions.restructure[loop] = code
    return True
