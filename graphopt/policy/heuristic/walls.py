"""What the heuristic replaces: walls that keep a loop from becoming native, and slow reductions."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.costs.opaque import is_wall
from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind


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
    if not graph.masks.restructure[loop, code]:
        return False
    bodies = [c for c in graph.computations if c.caller == loop]
    if any(graph.elements[c.first : c.end].max() > MAX_UNROLLED_ELEMENTS for c in bodies):
        return False
    decisions.restructure[loop] = code
    return True


TREE_ELEMENTS: Final = 1024
"""Smallest reduction to a scalar that is written as a tree."""

LIBRARY_TREE_ELEMENTS: Final = 1 << 15
"""The same where the kernel library would compute it, from arrays made only for that."""

WINDOW_NS_PER_ELEMENT: Final = 0.5
COPIED_NS_PER_ELEMENT: Final = 0.2
"""What a tree saves: the scalar code of a ``reduce-window``; copies, and sums over them, on their way
through memory."""

MIN_SAVED_SHARE: Final = 0.01
"""Part of the program's time that all trees together must save: replacing anything means reading the
whole module anew."""

_VIEWS: Final = frozenset({"slice", "pad", "reverse"})
"""Copies of a part, which the kernel library reads from memory and a loop computes on its way."""


def replace_reductions(graph: Graph, decisions: Decisions, program_ns: float) -> None:
    """Writes reductions to scalars as trees where XLA's form is slow: two cases.

    A ``reduce-window`` stands in front (scalar code), or the library reads copies of parts of arrays.

    Args:
        graph: of the program.
        decisions: changed in place.
        program_ns: estimated time of one run; nothing is done where too little of it would be saved.
    """
    code = CODE["tree-reduce"]
    allowed = graph.masks.restructure[:, code]
    chosen: dict[int, list[int]] = {}
    saved = 0.0
    for node in np.flatnonzero(allowed).tolist():
        source = graph.operand_lists[node][0]
        if graph.ops[source].name == "reduce-window":
            elements = int(graph.elements[graph.operand_lists[source][0]])
            copies, rate = [], WINDOW_NS_PER_ELEMENT
            pays = elements >= TREE_ELEMENTS
        else:
            elements = int(graph.elements[source])
            large = elements >= LIBRARY_TREE_ELEMENTS and _in_library(graph, node)
            copies, rate = _copies_only_for(graph, node) if large else [], COPIED_NS_PER_ELEMENT
            pays = bool(copies)
        if pays:
            chosen[node] = copies
            saved += elements * rate * float(graph.executions[node])
    if saved < MIN_SAVED_SHARE * program_ns:
        return
    for node, copies in chosen.items():
        decisions.restructure[node] = code
        decisions.fuse[copies] = True


def _in_library(graph: Graph, node: int) -> bool:
    return graph.units[graph.default.unit[node]].kind is UnitKind.LIBRARY


def _copies_only_for(graph: Graph, root: int) -> list[int]:
    """Copies of parts that only the default cluster of a root reads; they may be fused into it."""
    inside, stack, copies = {root}, [root], set()
    while stack:
        for operand in graph.operand_lists[stack.pop()]:
            if graph.default.fuse[operand]:
                if operand not in inside:
                    inside.add(operand)
                    stack.append(operand)
            elif graph.ops[operand].name in _VIEWS and graph.masks.fuse[operand, 1]:
                copies.add(operand)
    shared = {n for n in inside if any(u not in inside for u in graph.user_lists[n])} - {root}
    if shared:
        return []
    return [c for c in copies if all(u in inside for u in graph.user_lists[c])]
