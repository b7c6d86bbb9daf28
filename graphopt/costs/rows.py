"""What moving whole rows costs more in native code than in kernels of their own.

A concatenation or gather of short rows asks there for every element which part it is of, or where its row
begins; kernels of their own ask once per row.
"""

from __future__ import annotations

from typing import Final

from graphopt.hlo import Graph
from graphopt.machine import CpuCosts

MOVES: Final = frozenset({"concatenate", "gather"})
"""Operations that may move whole rows."""


def native_rows_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """Nanoseconds that one of `MOVES` takes longer in native code; 0 where its rows are no short ones."""
    layout = graph.source.shapes[node].layout.minor_to_major
    sizes = graph.dim_lists[node]
    if len(layout) < 2 or not 1 < sizes[layout[0]] < costs.native_row:
        return 0.0
    proto = graph.source.protos[node]
    if graph.ops[node].name == "concatenate" and layout[0] in proto.dimensions:
        return 0.0
    return float(graph.elements[node]) * costs.native_row_ns
