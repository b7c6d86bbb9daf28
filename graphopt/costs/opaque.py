"""What operations cost that no native region may contain as they are: LAPACK, sorts, scatters."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from graphopt.costs.scatters import scatter_costs
from graphopt.hlo import Graph
from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.module.opcodes import COLLECTIVES, OpKind
from graphopt.hlo.module.proto import DType
from graphopt.machine import CpuCosts, own_costs

MEETING_NS: Final = 20_000.0
"""About what a collective takes, nearly all of it waiting for the last device; nothing here shortens it."""


TOP_K: Final = "TopK"
"""XLA's custom call for the largest elements of rows."""


def is_wall(graph: Graph, node: int) -> bool:
    """True for an operation, not a loop around one, that no region may contain as it is."""
    return _walls(graph)[node]


@per_graph
def _walls(graph: Graph) -> list[bool]:
    """bool per node; see `is_wall`."""
    regional = graph.regional.tolist()
    return [
        not inside and op.kind is not OpKind.CONTROL
        for inside, op in zip(regional, graph.ops, strict=True)
    ]


def wall_costs(graph: Graph, node: int, costs: CpuCosts | None = None) -> tuple[float, float]:
    """Nanoseconds of a wall as a call of the runtime, and of its replacement; on this machine by default."""
    costs = costs or own_costs()
    name = graph.ops[node].name
    dims = _dims(graph, node)
    if name == "custom-call":
        return _call_costs(graph, node, dims, costs)
    if name == "sort":
        extent = max(dims, default=1)
        rows = prod(dims) / extent
        levels = max(1.0, float(np.log2(extent)))
        call = costs.sort_call_ns + rows * extent * levels * costs.sort_element_ns
        return call, rows * extent * extent * costs.sort_pair_ns
    if name in COLLECTIVES:
        return MEETING_NS, 0.0
    return scatter_costs(graph, node, costs)


def _call_costs(graph: Graph, node: int, dims: list[int], costs: CpuCosts) -> tuple[float, float]:
    """Nanoseconds of a custom call, and of its replacement if it has one."""
    target = graph.source.protos[node].custom_call_target
    if target == TOP_K:
        elements = float(graph.elements[graph.operand_lists[node][0]])
        return costs.lapack_call_ns + elements * costs.top_k_ns, 0.0
    batch = prod(dims[:-2])
    routine = next((name for name in costs.lapack if name in target), None)
    if routine is None:
        order = max(dims[-2:], default=1)
        return costs.lapack_call_ns + batch * _polynomial(costs.other_call, order, 1), 0.0
    found, order = costs.lapack[routine], graph.dim_lists[graph.operand_lists[node][0]][-1]
    columns = dims[-1] if routine == "trsm" else 1
    call = costs.lapack_call_ns + batch * _polynomial(found.call, order, columns)
    return call, batch * _polynomial(found.loop, order, columns)


def _polynomial(factors: tuple[float, float, float, float], order: int, columns: int) -> float:
    one, linear, square, cube = factors
    return one + linear * order + square * order * order * columns + cube * order**3


def _dims(graph: Graph, node: int) -> list[int]:
    """Extents of the first array of a result; none for a scalar, and for a token or an empty tuple."""
    shape = graph.source.shapes[node]
    while shape.element_type == DType.TUPLE:
        if not shape.tuple_shapes:
            return []
        shape = shape.tuple_shapes[0]
    return list(shape.dimensions)
