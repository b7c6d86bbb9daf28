"""Which elements lie together in memory. Dimensions of one element have no say in it."""

from __future__ import annotations

from collections.abc import Collection

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.layouts import merges_dimensions


def innermost(graph: Graph, node: int) -> int | None:
    """The dimension along which neighbours in memory differ; None for arrays of one element."""
    sizes = graph.dim_lists[node]
    layout = graph.source.shapes[node].layout.minor_to_major
    return next((dimension for dimension in layout if sizes[dimension] > 1), None)


def row(graph: Graph, node: int) -> int:
    """Elements along that dimension; 1 where there is none."""
    found = innermost(graph, node)
    return 1 if found is None else graph.dim_lists[node][found]


def divides(graph: Graph, node: int) -> bool:
    """True for a view whose elements are found in what it views by divisions."""
    shapes = graph.source.shapes
    return graph.ops[node].name == "bitcast" and merges_dimensions(
        shapes[graph.operand_lists[node][0]], shapes[node]
    )


def is_guarded(graph: Graph, root: int, members: Collection[int], unit: int) -> bool:
    """True for a kernel of the loop generator that tests for every element whether it computes it.

    Where the cores share rows, and rows have no equal parts, every part is as long as the longest, and the
    loop tests whether an element is still inside the array; the same with what concatenates along rows. LLVM
    makes no vector code of such loops. Where the place of every element takes a division it makes none of the
    whole either: nothing is lost in parts.

    Args:
        graph: of the program.
        root: of the kernel.
        members: all its nodes.
        unit: index of its execution unit.
    """
    inner, parts = innermost(graph, root), _parts(graph, root, unit)
    order = graph.source.shapes[root].layout.minor_to_major[::-1]
    along = next((n for dimension, n in zip(order, parts, strict=False) if dimension == inner), 1)
    if inner is None or along == 1 or any(divides(graph, node) for node in members):
        return False
    return bool(graph.dim_lists[root][inner] % along) or any(
        graph.ops[node].name == "concatenate" and _joins_rows(graph, node) for node in members
    )


def _parts(graph: Graph, root: int, unit: int) -> tuple[int, ...]:
    """Parts along each dimension, outermost first, that a kernel of a unit is split into."""
    if unit == graph.default.unit[root]:
        return backend_config.partitions(graph.source.config[root])
    layout = tuple(graph.source.shapes[root].layout.minor_to_major)
    dims = tuple(graph.dim_lists[root])
    return backend_config.split_outer_dimensions(dims, layout, graph.units[unit].threads)


def _joins_rows(graph: Graph, node: int) -> bool:
    inner = innermost(graph, node)
    first = graph.operand_lists[node][0]
    return inner is not None and graph.dim_lists[first][inner] != graph.dim_lists[node][inner]
