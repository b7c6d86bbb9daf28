"""What rows cost more: those that are moved in native code, and those that are no vector code.

A concatenation or gather of short rows asks there for every element which part it is of, or where its row
begins; kernels of their own ask once per row. A gather by several indices joins them for every element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from graphopt.costs.elements import element_ns, ends_ns
from graphopt.hlo import Graph
from graphopt.hlo.graph.layouts import (
    UNROLLED_ROW,
    VECTOR,
    has_odd_rows,
    innermost,
    is_better_flat,
    row,
)
from graphopt.hlo.graph.walks import inputs_of
from graphopt.hlo.legal.library_support import reducer
from graphopt.machine import CpuCosts

MOVES: Final = frozenset({"concatenate", "gather"})
"""Operations that may move whole rows."""


def moves_extra(graph: Graph, costs: CpuCosts) -> dict[int, float]:
    """Node -> nanoseconds that it takes longer in native code, for those of `MOVES` that do."""
    moves = [node for node, op in enumerate(graph.ops) if op.name in MOVES]
    extra = {n: _cells_ns(graph, n, costs) + _short_rows_ns(graph, n, costs) for n in moves}
    return {node: ns for node, ns in extra.items() if ns > 0.0}


def _cells_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """The part of a gather's indices beyond the first of each place."""
    proto = graph.source.protos[node]
    indices = len(proto.gather_dimension_numbers.start_index_map)
    return float(graph.elements[node]) * max(0, indices - 1) * costs.native_index_ns


def _short_rows_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """The part of short rows."""
    layout = graph.source.shapes[node].layout.minor_to_major
    sizes = graph.dim_lists[node]
    if len(layout) < 2 or not 1 < sizes[layout[0]] < costs.native_row:
        return 0.0
    proto = graph.source.protos[node]
    if graph.ops[node].name == "concatenate" and layout[0] in proto.dimensions:
        return 0.0
    return float(graph.elements[node]) * costs.native_row_ns


def narrow_places_extra(graph: Graph, costs: CpuCosts) -> dict[int, float]:
    """Reductions by combiners of several operations along columns -> what they take longer in native code.

    The kernel of such a reduction is vector code also where rows fill no vector, the same loop in native code
    is not.
    """
    extra = {}
    for node, op in enumerate(graph.ops):
        if op.name != "reduce" or reducer(graph, node) is not None:
            continue
        source = graph.operand_lists[node][0]
        along_rows = innermost(graph, source) in graph.source.protos[node].dimensions
        if not along_rows and row(graph, source) < VECTOR:
            extra[node] = float(graph.elements[source]) * costs.narrow_complex_ns
    return extra


def odd_rows_ns(graph: Graph, root: int, members: Sequence[int], costs: CpuCosts) -> float:
    """Nanoseconds of a kernel's scalar code, where its rows are no vector code and have to stay rows.

    Args:
        graph: of the program.
        root: of the kernel.
        members: all its nodes.
        costs: of the machine.
    """
    length = row(graph, root)
    if length <= costs.interleaved_row or not has_odd_rows(graph, root):
        return 0.0
    if is_better_flat(graph, root, members, inputs_of(graph, members)):
        return 0.0
    functions_ns = ends_ns(graph, members, length, costs)
    if length <= UNROLLED_ROW:
        functions = (n for n in members if graph.ops[n].name in costs.function_ns)
        functions_ns = length * sum(element_ns(graph, n, costs=costs) for n in functions)
    return (costs.row_end_ns + functions_ns) * float(graph.elements[root]) / length
