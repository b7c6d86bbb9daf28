"""Walls: operations that keep a loop from becoming native, and what to replace them with."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.hlo.ops import OpKind
from graphopt.hlo.schema import DType

LAPACK_CALL_NS: Final = 1000.0
"""A call into LAPACK for a small matrix, with its checks and copies."""

LAPACK_FLOPS_PER_NS: Final = 2.0
LOOP_STEP_NS: Final = 25.0
"""One step of a replacement's loop beside its arithmetic."""

LOOP_ELEMENTS_PER_NS: Final = 2.0
"""Elements of a matrix updated by a replacement's loop."""

WINDOW_NS: Final = 6.0
"""One window of a scatter, either way."""


def is_wall(graph: Graph, node: int) -> bool:
    """True for an operation, not a loop around one, that no region may contain as it is."""
    return not graph.regional[node] and graph.ops[node].kind is not OpKind.CONTROL


def opening_code(graph: Graph, node: int) -> int:
    """The restructure that takes a wall away; 0 if none is legal."""
    allowed = graph.masks.restructure[node]
    return next((c for c, row in enumerate(RESTRUCTURES) if row.opens and allowed[c]), 0)


def open_walls(graph: Graph, decisions: Decisions, nodes: range) -> None:
    """Replaces every wall among `nodes`."""
    for node in nodes:
        if is_wall(graph, node):
            decisions.restructure[node] = opening_code(graph, node)


def wall_costs(graph: Graph, node: int) -> tuple[float, float]:
    """Nanoseconds of a wall as a call of the runtime, and of its replacement."""
    name = graph.ops[node].name
    dims = _dims(graph, node)
    if name == "custom-call":
        batch, order = prod(dims[:-2]), max(dims[-2:], default=1)
        call = batch * (LAPACK_CALL_NS + order**3 / LAPACK_FLOPS_PER_NS)
        step = LOOP_STEP_NS + prod(dims[-2:]) / LOOP_ELEMENTS_PER_NS
        return call, batch * order * step
    if name == "sort":
        extent = max(dims, default=1)
        rows = prod(dims) / extent
        levels = max(1.0, float(np.log2(extent)))
        return 100 + rows * extent * levels * 4, rows * extent * extent / 2
    windows = WINDOW_NS * _windows(graph, node)
    return windows, windows


def _dims(graph: Graph, node: int) -> list[int]:
    shape = graph.source.shapes[node]
    if shape.element_type == DType.TUPLE:
        shape = shape.tuple_shapes[0]
    return list(shape.dimensions)


def _windows(graph: Graph, node: int) -> float:
    """About how many elements a scatter's updates have."""
    operands = graph.operand_lists[node]
    return float(min((graph.elements[o] for o in operands if graph.elements[o] > 1), default=1))
