"""What moving whole rows costs more in native code than in kernels of their own.

A concatenation or gather of short rows asks there for every element which part it is of, or where its row
begins; kernels of their own ask once per row.
"""

from __future__ import annotations

from typing import Final

from graphopt.hlo import Graph
from graphopt.machine import CpuCosts

_MOVES: Final = frozenset({"concatenate", "gather"})


def native_rows_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """Nanoseconds that a node takes longer in native code because it moves short rows; 0 for most nodes."""
    if graph.ops[node].name not in _MOVES:
        return 0.0
    layout = graph.source.shapes[node].layout.minor_to_major
    sizes = graph.dim_lists[node]
    if len(layout) < 2 or not 1 < sizes[layout[0]] < costs.native_row:
        return 0.0
    proto = graph.source.protos[node]
    if graph.ops[node].name == "concatenate" and layout[0] in proto.dimensions:
        return 0.0
    return float(graph.elements[node]) * costs.native_row_ns
