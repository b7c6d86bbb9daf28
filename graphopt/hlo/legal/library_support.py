"""Which nodes the YNN kernel library can execute (XLA's ``ynn_support.cc``, as predicates).

Stricter than XLA in two respects: only float32, and no product of a broadcast. Clusters that XLA itself gave
to the library are legal whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from graphopt.hlo.graph.derived import derives
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.proto import DType
from graphopt.machine import units

MAX_RANK: Final = 6

_ELEMENTWISE: Final = units.LIBRARY_UNARY | units.LIBRARY_BINARY


@derives("library_nodes")
def library_nodes(graph: Graph) -> tuple[list[bool], list[bool]]:
    """Per node: may it sit inside a library cluster, and may it be the root of one?"""
    inside = [False] * len(graph)
    root = [False] * len(graph)
    is_f32 = (graph.dtype == DType.F32).tolist()
    row_major = [
        f32 and _is_row_major(order)
        for f32, order in zip(is_f32, graph.source.layouts, strict=True)
    ]
    for node, op in enumerate(graph.ops):
        check = _CHECKS.get(op.name)
        if op.name == "constant":
            inside[node] = row_major[node]
        elif op.name in _ELEMENTWISE or check is not None:
            operands = graph.operand_lists[node]
            if row_major[node] and all(row_major[o] for o in operands):
                inside[node] = check is None or check(graph, node)
                root[node] = inside[node] and op.name in _ROOTS
    for node in _repeated_operands(graph):
        inside[node] = root[node] = False
    return inside, root


def _repeated_operands(graph: Graph) -> set[int]:
    """Operands of products that repeat smaller arrays: broadcasts, and what is made of nothing else.

    Of a right operand that repeats along its rows the library reads one row's memory for each of its columns,
    beyond the end of the array.
    """
    repeats = [False] * len(graph)
    found: set[int] = set()
    for node, op in enumerate(graph.ops):
        operands = graph.operand_lists[node]
        if op.name == "dot":
            found.update(operand for operand in operands if repeats[operand])
        elif op.name == "broadcast":
            repeats[node] = True
        elif op.name in _VIEWS or op.name in _ELEMENTWISE:
            arrays = [operand for operand in operands if graph.ops[operand].name != "constant"]
            repeats[node] = bool(arrays) and all(repeats[operand] for operand in arrays)
    return found


def _is_row_major(order: tuple[int, ...]) -> bool:
    """True if the last dimension is the minor one, and the library takes the rank."""
    rank = len(order)
    return rank < 2 or (rank <= MAX_RANK and list(order) == sorted(order, reverse=True))


def _instruction(graph: Graph, node: int) -> Any:
    return graph.source.protos[node]


def _broadcast(graph: Graph, node: int) -> bool:
    dimensions = list(_instruction(graph, node).dimensions)
    return dimensions == sorted(dimensions)


def _always(graph: Graph, node: int) -> bool:
    return True


def _reduce(graph: Graph, node: int) -> bool:
    operands = graph.operand_lists[node]
    if len(operands) != 2 or not _instruction(graph, node).dimensions:
        return False
    return (
        graph.ops[operands[1]].name == "constant" and reducer(graph, node) in units.LIBRARY_REDUCERS
    )


def reducer(graph: Graph, node: int) -> str | None:
    """Opcode of a reduction's scalar function, None unless it is one operation of two parameters."""
    called = graph.source.called[node]
    if len(called) != 1:
        return None
    computation = graph.source.module.computations[called[0]]
    root = computation.by_id[computation.root]
    if len(computation.instructions) != 3 or len(root.operands) != 2:
        return None
    operands = [computation.by_id[i] for i in root.operands]
    if {o.opcode for o in operands} != {"parameter"} or operands[0].local == operands[1].local:
        return None
    return str(root.opcode)


def _dot(graph: Graph, node: int) -> bool:
    """No batch, rows x columns in plain order, no vectors, some dimension of at least 8."""
    numbers = _instruction(graph, node).dot_dimension_numbers
    left, right = (graph.dim_lists[o] for o in graph.operand_lists[node])
    if numbers.lhs_batch_dimensions or len(left) != 2 or len(right) != 2:
        return False
    if list(numbers.lhs_contracting_dimensions) != [1]:
        return False
    if list(numbers.rhs_contracting_dimensions) != [0]:
        return False
    m, k, n = left[0], left[1], right[1]
    return m > 1 and n > 1 and max(m, k, n) >= units.LIBRARY_MIN_DOT_DIMENSION


_CHECKS: Final[dict[str, Callable[[Graph, int], bool]]] = {
    "broadcast": _broadcast,
    "bitcast": _always,
    "reshape": _always,
    "transpose": _always,
    "reduce": _reduce,
    "dot": _dot,
}
"""Conditions beyond dtype and layout, by opcode."""

_VIEWS: Final = frozenset({"bitcast", "reshape", "transpose"})

_ROOTS: Final = _ELEMENTWISE | {"reduce", "dot"}
