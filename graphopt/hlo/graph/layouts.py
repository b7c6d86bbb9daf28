"""Which elements lie together in memory. Dimensions of one element have no say in it."""

from __future__ import annotations

from graphopt.hlo.graph.graph import Graph


def innermost(graph: Graph, node: int) -> int | None:
    """The dimension along which neighbours in memory differ; None for arrays of one element."""
    sizes = graph.dim_lists[node]
    layout = graph.source.shapes[node].layout.minor_to_major
    return next((dimension for dimension in layout if sizes[dimension] > 1), None)


def row(graph: Graph, node: int) -> int:
    """Elements along that dimension; 1 where there is none."""
    found = innermost(graph, node)
    return 1 if found is None else graph.dim_lists[node][found]
