"""Kernels that end with a reshape: they end in front of it, where that saves work.

A ``bitcast`` that stands by itself is a name for the same memory and costs nothing. At the end of a kernel,
where XLA puts it, the loop runs over the dimensions behind it: the place of every element among those in
front takes divisions, which keep the loop from being vectorised, and whoever else reads the value computes
it again.
"""

from __future__ import annotations

from typing import Final

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.layouts import extents, merges_dimensions
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import UnitKind

DIVIDED_NS: Final = 0.2
"""What the divisions cost per element."""

MIN_ROW: Final = 8
"""Elements that the innermost dimension must have for a loop over it to be vectorised."""

_GENERATED: Final = (UnitKind.LOOP, UnitKind.NATIVE)
"""Units whose code runs over the dimensions of a kernel's result."""


def end_before_views(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Writes values to memory in their own dimensions where only a view of them is written now.

    Args:
        graph: of the program.
        model: its costs.
        decisions: changed in place.
    """
    chosen: dict[int, int] = {}
    saved = 0.0
    for view, op in enumerate(graph.ops):
        if op.name != "bitcast" or decisions.fuse[view] or decisions.join[view]:
            continue
        (value,) = graph.operand_lists[view]
        index = decisions.unit[view]
        unit = graph.units[index]
        legal = graph.masks.fuse[value, 0] and graph.masks.unit[value, index]
        if not decisions.fuse[value] or not legal or unit.kind not in _GENERATED or value in chosen:
            continue
        ns = _saved_ns(graph, model, decisions, view, value)
        if ns > 0.0:
            chosen[value] = view
            saved += ns / unit.threads * float(graph.executions[view])
    if saved > model.rewriting_ns:
        for value, view in chosen.items():
            decisions.fuse[value] = False
            decisions.unit[value] = decisions.unit[view]


def _saved_ns(graph: Graph, model: CostModel, decisions: Decisions, view: int, value: int) -> float:
    """Nanoseconds that one core saves: divisions, and what other readers of the value compute again."""
    if graph.ops[value].kind is not OpKind.ELEMENTWISE:
        return 0.0  # places of elements are computed in either form
    saved = 0.0
    shape = graph.source.shapes[value]
    sizes = extents(shape)
    long = bool(sizes) and sizes[0] >= MIN_ROW
    if long and merges_dimensions(shape, graph.source.shapes[view]):
        saved += DIVIDED_NS * float(graph.elements[value])
    if len(graph.user_lists[value]) > 1:
        saved += sum(model.work[member] for member in model.members(decisions.fuse, value))
    return saved
