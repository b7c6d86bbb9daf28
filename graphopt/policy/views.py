"""Kernels that end with a reshape: they end in front of it, where that saves work.

A ``bitcast`` that stands by itself is a name for the same memory and costs nothing. At the end of a kernel,
where XLA puts it, the loop runs over the dimensions behind it: the place of every element among those in
front takes divisions, which keep the loop from being vectorised, and whoever else reads the value computes
it again.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Final

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.ops import OpKind
from graphopt.machine import UnitKind
from graphopt.policy.costs import CostModel

DIVIDED_NS: Final = 0.2
"""What the divisions cost per element."""

MIN_ROW: Final = 8
"""Elements that the innermost dimension must have for a loop over it to be vectorised."""

MIN_SAVED_NS: Final = 500.0
MIN_SAVED_SHARE: Final = 0.01
"""What all kernels together must save, in one run and as a part of its time: below, writing the module again
takes longer than it is worth."""

_GENERATED: Final = (UnitKind.LOOP, UnitKind.NATIVE)
"""Units whose code runs over the dimensions of a kernel's result."""


def end_before_views(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Writes values to memory in their own dimensions where only a view of them is written now.

    Args:
        graph: of the program.
        model: its costs.
        decisions: changed in place.
    """
    chosen: list[tuple[int, int]] = []
    fused = decisions.fuse.tolist()
    saved = 0.0
    for view in range(len(graph) - 1, -1, -1):
        if graph.ops[view].name != "bitcast" or fused[view] or decisions.join[view]:
            continue
        (value,) = graph.operand_lists[view]
        index = decisions.unit[view]
        unit = graph.units[index]
        legal = graph.masks.fuse[value, 0] and graph.masks.unit[value, index]
        if not fused[value] or not legal or unit.kind not in _GENERATED:
            continue
        ns = _saved_ns(graph, model, decisions, view, value)
        if ns > 0.0:
            fused[value] = False
            chosen.append((view, value))
            saved += ns / unit.threads * float(graph.executions[view])
    least = MIN_SAVED_SHARE * model.computations[-1].default_ns(model.cores)
    if saved > max(MIN_SAVED_NS, least):
        for view, value in chosen:
            decisions.fuse[value] = False
            decisions.unit[value] = decisions.unit[view]


def _saved_ns(graph: Graph, model: CostModel, decisions: Decisions, view: int, value: int) -> float:
    """Nanoseconds that one core saves: divisions, and what other readers of the value compute again."""
    if graph.ops[value].kind is not OpKind.ELEMENTWISE:
        return 0.0  # places of elements are computed in either form
    saved = 0.0
    if _merges(_extents(graph, value), _extents(graph, view)):
        saved += DIVIDED_NS * float(graph.elements[value])
    if len(graph.user_lists[value]) > 1:
        saved += sum(model.work[member] for member in model.members(decisions.fuse, value))
    return saved


def changes_extents(graph: Graph, view: int) -> bool:
    """True for a reshape: places of elements among its dimensions are not those among its operand's."""
    (operand,) = graph.operand_lists[view]
    return _extents(graph, view) != _extents(graph, operand)


def _merges(value: list[int], view: list[int]) -> bool:
    """True if a view has one dimension for several of its value's, whose innermost is worth a loop.

    The place in one for several takes a division; the other way round it takes a product.
    """

    def boundaries(extents: list[int]) -> set[int]:
        """Elements of the innermost dimension, the inner two, and so on, as far as these are not all."""
        return set(accumulate(extents[:-1], mul))

    long = bool(value) and value[0] >= MIN_ROW
    return long and not boundaries(value) <= boundaries(view)


def _extents(graph: Graph, node: int) -> list[int]:
    """Sizes of the dimensions, the innermost in memory first, those of size 1 aside."""
    sizes = graph.dim_lists[node]
    order = graph.source.shapes[node].layout.minor_to_major
    return [sizes[dimension] for dimension in order if sizes[dimension] != 1]
