"""What reductions along rows cost in native code: one element after the other, and in slices."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

from graphopt.costs.elements import FLOATS
from graphopt.hlo import Graph
from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.layouts import innermost
from graphopt.hlo.legal.library_support import reducer
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.reduce_windows import source_node
from graphopt.hlo.restructure.sites import Candidate
from graphopt.machine import CpuCosts

SLICED: Final = "slice-reduce"

MARGIN: Final = 1.1
"""A reduction is made in slices where that is so much faster by the estimate."""

FEW_TOGETHER: Final = 4
"""Kept elements that lie together behind the reduced dimension: so few make no vector."""

_WIDE: Final = frozenset({DType.F64, DType.C64, DType.C128})
_EXTREMES: Final = frozenset({"maximum", "minimum"})


@dataclass(frozen=True)
class ReductionCosts:
    """Nanoseconds of one reduction in native code, of the windows in front of it too.

    Attributes:
        plain_ns: as it stands.
        sliced_ns: in slices.
    """

    plain_ns: float
    sliced_ns: float

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
    return {
        node: _costs(graph, node, source, costs) for node, source in _scalar_ones(graph).items()
    }


@per_graph
def _scalar_ones(graph: Graph) -> dict[int, int]:
    """Such reductions -> what they reduce, windows in front of them left out.

    Whole numbers may be added up in any order. Along other dimensions than the innermost, vector code runs
    along the elements that lie together, unless there are very few. What is fused into the reduction would
    have to be written to memory, which takes longer than is saved.
    """
    found = {}
    for node in graph.masks.restructure[:, CODE[SLICED]].nonzero()[0].tolist():
        source = source_node(Candidate(graph, node))
        if int(graph.dtype[node]) not in FLOATS or graph.default.fuse[source]:
            continue
        if _together(graph, node, source) <= FEW_TOGETHER:
            found[node] = source
    return found


def _together(graph: Graph, node: int, source: int) -> int:
    """Elements that are kept and lie together in memory."""
    (reduced,) = graph.source.protos[node].dimensions
    return (
        1 if innermost(graph, source) == reduced else prod(graph.dim_lists[source][reduced + 1 :])
    )


def _costs(graph: Graph, node: int, source: int, costs: CpuCosts) -> ReductionCosts:
    read, rows = float(graph.elements[source]), float(graph.elements[node])
    if reducer(graph, node) in _EXTREMES:
        plain = costs.row_extreme_ns * read
    else:
        plain = max(costs.row_sum_ns * read, costs.row_sum_least_ns * rows)
    wide = 2.0 if int(graph.dtype[node]) in _WIDE else 1.0
    return ReductionCosts(plain, wide * costs.sliced_ns * read + costs.sliced_row_ns * rows)
