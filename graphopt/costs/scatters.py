"""What scatters cost: by XLA's own loop over windows, and by the loop that replaces it in native code."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from graphopt.hlo import Graph
from graphopt.machine import CpuCosts


def scatter_costs(graph: Graph, node: int, costs: CpuCosts) -> tuple[float, float]:
    """Nanoseconds of a scatter, or a fusion of XLA around some, and of its replacement."""
    call = replacement = 0.0
    for windows, elements in _windows(graph, node):
        more = max(0, elements - windows)
        call += costs.scatter_ns * windows + costs.scatter_element_ns * more
        replacement += costs.scatter_loop_ns * windows + costs.scatter_loop_element_ns * more
    return call, replacement


def _windows(graph: Graph, node: int) -> Iterator[tuple[int, int]]:
    """Windows and elements of the updates of every scatter in a node."""
    proto = graph.source.protos[node]
    if proto.opcode == "scatter":
        shapes = [graph.source.shapes[operand] for operand in graph.operand_lists[node]]
        yield _counted(proto, shapes)
        return
    for called in graph.source.called[node]:
        body = graph.source.module.computations[called]
        for instruction in body.instructions:
            if instruction.opcode == "scatter":
                shapes = [body.by_id[operand].shape for operand in instruction.operands]
                yield _counted(instruction.proto, shapes)


def _counted(scatter: Any, shapes: list[Any]) -> tuple[int, int]:
    updates = list(shapes[len(shapes) // 2 + 1].dimensions)
    inside = set(scatter.scatter_dimension_numbers.update_window_dims)
    windows = prod(n for dimension, n in enumerate(updates) if dimension not in inside)
    return windows, prod(updates)
