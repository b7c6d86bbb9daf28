"""Which nodes the YNN kernel library can execute (XLA's ``ynn_support.cc``, as predicates).

Stricter than XLA in one respect: only float32. Clusters that XLA itself gave to the library are
legal whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from graphopt.hlo.module import LOCAL_ID
from graphopt.hlo.schema import DType, HloInstructionProto
from graphopt.machine import units

if TYPE_CHECKING:
    from graphopt.hlo.graph import Graph

MAX_RANK: Final = 6

_ELEMENTWISE: Final = units.LIBRARY_UNARY | units.LIBRARY_BINARY


def library_nodes(graph: Graph) -> tuple[list[bool], list[bool]]:
    """Per node: may it sit inside a library cluster, and may it be the root of one?"""
    inside = [False] * len(graph)
    root = [False] * len(graph)
    row_major = [_is_row_major_f32(shape) for shape in graph.source.shapes]
    for node, op in enumerate(graph.ops):
        check = _CHECKS.get(op.name)
        if op.name == "constant":
            inside[node] = row_major[node]
        elif op.name in _ELEMENTWISE or check is not None:
            operands = graph.operand_lists[node]
            if row_major[node] and all(row_major[o] for o in operands):
                inside[node] = check is None or check(graph, node)
                root[node] = inside[node] and op.name in _ROOTS
    return inside, root


def _is_row_major_f32(shape: Any) -> bool:
    if shape.element_type != DType.F32 or len(shape.dimensions) > MAX_RANK:
        return False
    return is_row_major(shape)


def is_row_major(shape: Any) -> bool:
    """True if the last dimension is the minor one."""
    order = shape.layout.minor_to_major
    return list(order) == list(range(len(order) - 1, -1, -1))


def _instruction(graph: Graph, node: int) -> Any:
    return HloInstructionProto.FromString(graph.source.attributes[node])


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
    if len(computation.instructions) != 3 or len(root.operand_ids) != 2:
        return None
    operands = [computation.by_id[i & LOCAL_ID] for i in root.operand_ids]
    if {o.opcode for o in operands} != {"parameter"} or operands[0].id == operands[1].id:
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

_ROOTS: Final = _ELEMENTWISE | {"reduce", "dot"}
