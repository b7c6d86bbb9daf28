"""Kernels that end with a reshape: they end in front of it, where that saves work.

A ``bitcast`` that stands by itself is a name for the same memory and costs nothing. At the end of a kernel,
where XLA puts it, the loop runs over the dimensions behind it: the place of every element among those in
front takes divisions, which keep the loop from being vectorised, and whoever else reads the value computes
it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.hlo.module.layouts import extents, merges_dimensions
from graphopt.hlo.module.opcodes import OpKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.in_memory import GENERATED
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    min_row: int = limit(
        8, "elements", "shortest innermost dimension over which a loop is vectorised"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Writes values to memory in their own dimensions where only a view of them is written now."""
    graph, decisions = context.graph, context.decisions
    wanted = decisions.copy()
    saved = 0.0
    for view, op in enumerate(graph.ops):
        if op.name != "bitcast" or decisions.fuse[view] or decisions.join[view]:
            continue
        (value,) = graph.operand_lists[view]
        index = decisions.unit[view]
        unit = graph.units[index]
        legal = graph.masks.fuse[value, 0] and graph.masks.unit[value, index]
        if not wanted.fuse[value] or not legal or unit.kind not in GENERATED:
            continue
        ns = _saved_ns(context, view, value)
        if ns > 0.0:
            wanted.fuse[value] = False
            wanted.unit[value] = index
            saved += ns / unit.threads * context.executions(view)
    return context.edit(wanted, saved, "kernels end in front of a reshape")


def _saved_ns(context: Context, view: int, value: int) -> float:
    """Nanoseconds that one core saves: divisions, and what other readers of the value compute again."""
    graph, model = context.graph, context.model
    if graph.ops[value].kind is not OpKind.ELEMENTWISE:
        return 0.0  # places of elements are computed in either form
    saved = 0.0
    shape = graph.source.shapes[value]
    sizes = extents(shape)
    long = bool(sizes) and sizes[0] >= LIMITS.min_row
    if long and merges_dimensions(shape, graph.source.shapes[view]):
        saved += context.costs.divided_ns * float(graph.elements[value])
    if len(graph.user_lists[value]) > 1:
        saved += sum(model.work[m] for m in model.members(context.decisions.fuse, value))
    return saved


STEP: Final = Step(
    name="views",
    summary="Kernels that end with a reshape end in front of it.",
    apply=apply,
    after=("small runs",),
    min_saved_ns=500.0,
    min_saved_share=0.01,
    limits=LIMITS,
)
