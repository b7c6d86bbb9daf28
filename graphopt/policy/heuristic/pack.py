"""Functions of scalars and small arrays in native code, computed together where that is faster.

See `graphopt.hlo.restructure.rows.pack`: LLVM unrolls short loops into scalar code, and a packed array is
computed in vector code.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.graph import Computation
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import DType
from graphopt.hlo.plan.clusters import roots_around
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.pack import MIN_PACKED
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.native import inside_native

SHORT_NS: Final[dict[str, dict[int, tuple[float, float]]]] = {
    "erf": {DType.F32: (2.5, 0.35)},
    "exponential": {DType.F32: (2.7, 0.4), DType.F64: (4.3, 1.2)},
    "exponential-minus-one": {DType.F32: (7.5, 1.0), DType.F64: (8.7, 2.5)},
    "log": {DType.F32: (4.5, 0.9)},
    "log-plus-one": {DType.F32: (9.0, 1.4), DType.F64: (6.5, 3.8)},
    "logistic": {DType.F32: (4.0, 0.5), DType.F64: (5.0, 1.5)},
    "tanh": {DType.F32: (3.2, 0.4), DType.F64: (3.8, 1.1)},
}
"""Nanoseconds per element in native code, arrays of 4 to 32 elements and long ones
(``python -m benchmarks.functions``)."""

MEMBER_NS: Final = 1.0
"""Copying an argument, reading a result, and cutting a kernel in two."""

PACK_NS: Final = 5.0
"""The loop over a packed array, its elements aside."""

MIN_SAVED_SHARE: Final = 0.03
"""Part of a computation's time, run once, that its packed functions must save."""

UNROLLED: Final = 300.0
"""Instructions, all iterations together, up to which LLVM unrolls a loop in full."""

LOOP_INSTRUCTIONS: Final = 4
"""Instructions of a loop that neither load nor compute: counter, comparison, branch and store."""

INTERLEAVED: Final = 8
MIN_ROWS: Final = 4
"""Longest unrolled rows whose loop over the rows is vectorized, and how many of them that takes."""


def pack_functions(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Packs the functions of every computation in native code where it gains.

    Args:
        graph: of the program.
        model: its costs.
        decisions: what is native, and what is fused, is decided; changed in place.
    """
    legal = graph.masks.restructure[:, CODE["pack"]]
    if not legal.any():
        return
    inside = inside_native(graph, model, decisions)
    for index, computation in enumerate(graph.computations):
        nodes = np.flatnonzero(legal[computation.first : computation.end]) + computation.first
        found = [
            node
            for node in nodes.tolist()
            if not decisions.restructure[node]
            and _is_scalar_code(graph, model, decisions, node, index in inside)
        ]
        if len(found) > 1:
            _pack(graph, model, decisions, index, found)


def _pack(
    graph: Graph, model: CostModel, decisions: Decisions, index: int, found: list[int]
) -> None:
    saved = 0.0
    chosen: list[int] = []
    for members in _groups(graph, graph.computations[index], found):
        gain = _saved_ns(graph, members)
        if gain > 0.0:
            saved += gain
            chosen += members
    if saved <= MIN_SAVED_SHARE * model.computations[index].native_ns():
        return
    decisions.restructure[chosen] = CODE["pack"]
    for node in chosen:
        for value in (node, *graph.operand_lists[node]):
            if graph.masks.fuse[value, 0]:
                decisions.fuse[value] = False


def _groups(graph: Graph, computation: Computation, found: list[int]) -> list[list[int]]:
    """Functions of one kind that do not depend on one another."""
    members = set(found)
    level: dict[int, int] = {}
    groups: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    for node in range(computation.first, computation.end):
        before = [o for o in graph.operand_lists[node] if o in level]
        level[node] = max((level[o] + (o in members) for o in before), default=0)
        if node in members:
            dtype = graph.source.shapes[node].element_type
            groups[level[node], graph.ops[node].name, dtype].append(node)
    return [group for group in groups.values() if len(group) > 1]


def _saved_ns(graph: Graph, members: list[int]) -> float:
    """Nanoseconds that packing saves; less than 0 where it takes longer."""
    short, vector = SHORT_NS[graph.ops[members[0]].name][
        graph.source.shapes[members[0]].element_type
    ]
    elements = float(graph.elements[members].sum())
    packed = max(elements, MIN_PACKED) * vector + len(members) * MEMBER_NS + PACK_NS
    return elements * short - packed


def _is_scalar_code(
    graph: Graph, model: CostModel, decisions: Decisions, node: int, inside: bool
) -> bool:
    """True for a function in native code whose loops LLVM unrolls in full."""
    native = unit_index(graph.units, UnitKind.NATIVE)
    dims = [n for n in graph.dim_lists[node] if n > 1]
    row = dims[-1] if dims else 1
    if 1 < row <= INTERLEAVED and graph.elements[node] >= MIN_ROWS * row:
        return False
    for root in roots_around(graph, decisions.fuse, node):
        if not inside and decisions.unit[root] != native:
            return False
        if row * _instructions(graph, model, decisions, root) > UNROLLED:
            return False
    return True


def _instructions(graph: Graph, model: CostModel, decisions: Decisions, root: int) -> int:
    """About how many instructions one iteration of a kernel's innermost loop has."""
    members = set(model.members(decisions.fuse, root))
    read = {operand for member in members for operand in graph.operand_lists[member]} - members
    loads = sum(graph.elements[operand] > 1 for operand in read)
    computed = sum(graph.ops[member].kind is OpKind.ELEMENTWISE for member in members)
    return LOOP_INSTRUCTIONS + int(loads) + computed
