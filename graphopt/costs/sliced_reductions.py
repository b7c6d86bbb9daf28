"""What reductions cost as loops: one element after the other, and in slices.

Along rows, each element waits for the last. Along columns, LLVM makes no vector code either: it goes down one
column after the other, through every array that is fused into the reduction. In slices, those are combined
and written first.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.elements import FLOATS, reduced_ns
from graphopt.costs.rows import odd_rows_ns
from graphopt.hlo import Graph
from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.layouts import innermost
from graphopt.hlo.graph.walks import fused_into, inputs_of
from graphopt.hlo.legal.library_support import reducer
from graphopt.hlo.module.proto import DTYPE_BYTES, DType
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.reduce_windows import source_node
from graphopt.hlo.restructure.rows.slice_reduce import LEAST, NEAR_BYTES, cut
from graphopt.hlo.restructure.sites import Candidate
from graphopt.machine import CpuCosts

SLICED: Final = "slice-reduce"

MARGIN: Final = 1.1
"""A reduction is made in slices where that is so much faster by the estimate."""

FEW_TOGETHER: Final = 4
"""Kept elements that lie together behind the reduced dimensions: so few make no vector."""

LEAST_READ: Final = 4096
"""Elements from which on a reduction along columns is looked at; shorter ones gain nothing."""

FEW_ROWS: Final = 128
"""Slices of so many rows find places in the first cache in any case."""

FAR_BYTES: Final = 1 << 16
"""Bytes of arrays that are too large for the first cache."""

_WIDE: Final = frozenset({DType.F64, DType.C64, DType.C128})
_EXTREMES: Final = frozenset({"maximum", "minimum"})


@dataclass(frozen=True)
class ReductionCosts:
    """Nanoseconds of one reduction by a loop, of the windows in front of it too.

    Attributes:
        plain_ns: as it stands.
        sliced_ns: in slices.
        uncounted_ns: what `plain_ns` has more than `graphopt.costs.elements.reduced_ns` counts.
        apart: node that slices are read from, to be in memory; None if it is there anyway.
    """

    plain_ns: float
    sliced_ns: float
    uncounted_ns: float = 0.0
    apart: int | None = None

    @property
    def is_sliced(self) -> bool:
        """True if slices are clearly faster."""
        return MARGIN * self.sliced_ns < self.plain_ns

    @property
    def saved_ns(self) -> float:
        """What the faster form saves over the reduction as it stands."""
        return self.plain_ns - self.sliced_ns if self.is_sliced else 0.0


def sliced_costs(graph: Graph, costs: CpuCosts) -> dict[int, ReductionCosts]:
    """Costs of every reduction that may be made in slices and that LLVM makes no vector code of."""
    rows, columns = _scalar_ones(graph)
    return {node: _along_rows(graph, node, source, costs) for node, source in rows.items()} | {
        node: _along_columns(graph, node, source, costs)
        for node, source in columns.items()
        if graph.elements[source] > costs.unrolled_columns * graph.elements[node]
    }


@per_graph
def _scalar_ones(graph: Graph) -> tuple[dict[int, int], dict[int, int]]:
    """Such reductions -> what they reduce, windows in front of them left out; along rows, and along columns.

    Whole numbers may be added up in any order. What is fused into a reduction along rows would have to be
    written to memory, which takes longer than is saved.
    """
    rows, columns = {}, {}
    for node in graph.masks.restructure[:, CODE[SLICED]].nonzero()[0].tolist():
        if int(graph.dtype[node]) not in FLOATS:
            continue
        source = source_node(Candidate(graph, node))
        if _together(graph, node, source) <= FEW_TOGETHER:
            if not graph.default.fuse[source]:
                rows[node] = source
        elif _is_long(graph, node, source):
            columns[node] = source
    return rows, columns


def _is_long(graph: Graph, node: int, source: int) -> bool:
    """True for a reduction along columns, of a value that may be in memory, that is long enough."""
    if source != graph.operand_lists[node][0] or graph.elements[source] < LEAST_READ:
        return False
    return not graph.default.fuse[source] or bool(graph.masks.fuse[source, 0])


def _together(graph: Graph, node: int, source: int) -> int:
    """Elements that are kept and lie together in memory."""
    reduced = graph.source.protos[node].dimensions
    if innermost(graph, source) in reduced:
        return 1
    return prod(graph.dim_lists[source][max(reduced) + 1 :])


def _along_rows(graph: Graph, node: int, source: int, costs: CpuCosts) -> ReductionCosts:
    read, rows = float(graph.elements[source]), float(graph.elements[node])
    if reducer(graph, node) in _EXTREMES:
        plain = costs.row_extreme_ns * read
    else:
        plain = max(costs.row_sum_ns * read, costs.row_sum_least_ns * rows)
    wide = _width(graph, node)
    return ReductionCosts(plain, wide * costs.sliced_ns * read + costs.sliced_row_ns * rows)


def _along_columns(graph: Graph, node: int, source: int, costs: CpuCosts) -> ReductionCosts:
    read = float(graph.elements[source])
    counted = read * reduced_ns(graph, node, costs)
    plain = down_columns_ns(graph, source, graph.default.fuse, costs)
    sliced = _width(graph, node) * read * costs.sliced_column_ns
    if graph.default.fuse[source]:
        members = fused_into(graph, graph.default.fuse, source)
        sliced += odd_rows_ns(graph, source, members, costs)
    apart = source if graph.masks.fuse[source, 0] else None
    return ReductionCosts(plain, sliced, max(0.0, plain - counted), apart)


def down_columns_ns(graph: Graph, source: int, fuse: NDArray[np.bool_], costs: CpuCosts) -> float:
    """Nanoseconds of a loop that goes down one column of a value after the other.

    Args:
        graph: of the program.
        source: the value.
        fuse: bool [N]; True where a node is computed inside its users. Each array that is fused into the
            value counts by itself, but those of less than half its elements.
        costs: of the machine.
    """
    read, arrays = float(graph.elements[source]), 1
    if fuse[source]:
        inputs = inputs_of(graph, fused_into(graph, fuse, source))
        arrays = max(1, sum(2 * int(graph.elements[i]) > read for i in inputs))
    far = graph.nbytes[source] >= FAR_BYTES
    return read * arrays * (costs.far_column_ns if far else costs.column_ns)


def sliced_kernels_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """Nanoseconds of a reduction along columns in slices, by kernels of XLA's own, of an array in memory."""
    source = source_node(Candidate(graph, node))
    row_bytes = _together(graph, node, source) * DTYPE_BYTES[int(graph.dtype[node])]
    rows = prod(graph.dim_lists[source][d] for d in graph.source.protos[node].dimensions)
    kernels, crowded = 1, False
    while rows >= LEAST:
        _, length = cut(rows, row_bytes)
        crowded |= rows > FEW_ROWS and length * row_bytes % NEAR_BYTES == 0
        rows = length
        kernels += 1
    element_ns = costs.crowded_kernel_ns if crowded else costs.sliced_kernel_ns
    work = _width(graph, node) * float(graph.elements[source]) * element_ns
    return kernels * costs.thunk_ns + work


def _width(graph: Graph, node: int) -> float:
    """How many vectors take what one takes of single precision."""
    return 2.0 if int(graph.dtype[node]) in _WIDE else 1.0
