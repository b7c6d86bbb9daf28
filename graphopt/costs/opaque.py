"""What operations cost that no native region may contain as they are: LAPACK, sorts, scatters."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from graphopt.hlo import Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import DType, HloInstructionProto

LAPACK_CALL_NS: Final = 500.0
"""A call into LAPACK, whatever number of matrices it computes."""


@dataclass(frozen=True)
class LapackCosts:
    """Nanoseconds of a routine for one matrix (``python -m benchmarks.lapack``).

    Attributes:
        call: factors of 1, n, n n m and n^3 inside the call; n is the order, m the columns on the right of
            a solve, else 1.
        loop: the same of the replacement in native code.
    """

    call: tuple[float, float, float, float]
    loop: tuple[float, float, float, float]


LAPACK: Final[dict[str, LapackCosts]] = {
    "potrf": LapackCosts(call=(40, 12, 0, 0.07), loop=(0, 15, 0, 0.5)),
    "getrf": LapackCosts(call=(40, 0, 6, 0), loop=(0, 0, 20, 0)),
    "trsm": LapackCosts(call=(40, 6, 0.17, 0), loop=(0, 10, 0.5, 0)),
}
"""Routine -> its costs."""

OTHER_CALL: Final = (500.0, 0.0, 0.0, 0.5)
"""Any other call: more than one of the above."""

SCATTER_NS: Final = 1.5
WINDOW_NS: Final = 6.0
"""One window of a scatter: by XLA's own loop, and by its replacement."""


def is_wall(graph: Graph, node: int) -> bool:
    """True for an operation, not a loop around one, that no region may contain as it is."""
    return not graph.regional[node] and graph.ops[node].kind is not OpKind.CONTROL


def wall_costs(graph: Graph, node: int) -> tuple[float, float]:
    """Nanoseconds of a wall as a call of the runtime, and of its replacement."""
    name = graph.ops[node].name
    dims = _dims(graph, node)
    if name == "custom-call":
        return _call_costs(graph, node, dims)
    if name == "sort":
        extent = max(dims, default=1)
        rows = prod(dims) / extent
        levels = max(1.0, float(np.log2(extent)))
        return 100 + rows * extent * levels * 4, rows * extent * extent / 2
    windows = _windows(graph, node)
    return SCATTER_NS * windows, WINDOW_NS * windows


def _call_costs(graph: Graph, node: int, dims: list[int]) -> tuple[float, float]:
    """Nanoseconds of a custom call, and of its replacement if it has one."""
    target = HloInstructionProto.FromString(graph.source.attributes[node]).custom_call_target
    batch = prod(dims[:-2])
    routine = next((name for name in LAPACK if name in target), None)
    if routine is None:
        order = max(dims[-2:], default=1)
        return LAPACK_CALL_NS + batch * _polynomial(OTHER_CALL, order, 1), 0.0
    costs, order = LAPACK[routine], graph.dim_lists[graph.operand_lists[node][0]][-1]
    columns = dims[-1] if routine == "trsm" else 1
    call = LAPACK_CALL_NS + batch * _polynomial(costs.call, order, columns)
    return call, batch * _polynomial(costs.loop, order, columns)


def _polynomial(factors: tuple[float, float, float, float], order: int, columns: int) -> float:
    one, linear, square, cube = factors
    return one + linear * order + square * order * order * columns + cube * order**3


def _dims(graph: Graph, node: int) -> list[int]:
    shape = graph.source.shapes[node]
    if shape.element_type == DType.TUPLE:
        shape = shape.tuple_shapes[0]
    return list(shape.dimensions)


def _windows(graph: Graph, node: int) -> float:
    """About how many elements a scatter's updates have."""
    operands = graph.operand_lists[node]
    return float(min((graph.elements[o] for o in operands if graph.elements[o] > 1), default=1))
