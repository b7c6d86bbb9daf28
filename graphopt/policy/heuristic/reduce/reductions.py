"""Reductions to scalars that XLA computes in scalar code, or from copies, become trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.costs.elements import FLOATS
from graphopt.hlo import Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit

_VIEWS: Final = frozenset({"slice", "pad", "reverse"})
"""Copies of a part, which the kernel library reads from memory and a loop computes on its way."""


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    tree_elements: int = limit(
        1024,
        "elements",
        "smallest tree in place of a reduce-window, or of functions in native code",
    )
    native_elements: int = limit(
        24, "elements", "smallest in native code otherwise, of floating-point numbers"
    )
    native_whole_elements: int = limit(100, "elements", "the same of whole numbers and bits")
    inside_operations: float = limit(
        4.0, "operations", "what is computed inside such a tree instead of in front of it"
    )
    library_tree_elements: int = limit(
        1 << 15, "elements", "the same where the library would compute it"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Writes reductions as trees where XLA's form is slow: three cases.

    A ``reduce-window`` stands in front (scalar code), the library reads copies of parts of arrays, or native
    code adds up what it computes, one element after the other.
    """
    code = CODE["tree-reduce"]
    wanted = context.decisions.copy()
    saved = 0.0
    for node in np.flatnonzero(context.masks.restructure[:, code]).tolist():
        found = _tree(context, node)
        if found is None:
            continue
        copies, ns = found
        wanted.restructure[node] = code
        wanted.fuse[copies] = True
        saved += ns * context.executions(node)
    return context.edit(wanted, saved, "sums to scalars as trees")


def _tree(context: Context, node: int) -> tuple[list[int], float] | None:
    """Copies to fuse into a reduction's tree, and nanoseconds that one saves; None where it does not pay."""
    graph, costs = context.graph, context.costs
    source = graph.operand_lists[node][0]
    window = graph.ops[source].name == "reduce-window"
    whole = graph.operand_lists[source][0] if window else source
    elements = int(graph.elements[whole])
    if context.is_inside_native(node) and graph.ops[whole].kind is OpKind.ELEMENTWISE:
        return _native_tree(context, whole)
    if window:
        return ([], elements * costs.tree_window_ns) if elements >= LIMITS.tree_elements else None
    if elements < LIMITS.library_tree_elements or not _in_library(graph, node):
        return None
    copies = _copies_only_for(graph, node)
    return (copies, elements * costs.tree_copied_ns) if copies else None


def _native_tree(context: Context, whole: int) -> tuple[list[int], float] | None:
    """The same in native code, where one addition waits for the other, unless they are of whole numbers.

    XLA puts a reduce-window of its own between long arrays and their sums, and `whole` in memory. A few
    simple operations are computed inside the tree; functions of its short slices would be scalar code.
    """
    graph, fuse = context.graph, context.decisions.fuse
    costs = [graph.ops[node].cost for node in context.model.members(fuse, whole)]
    simple = max(costs) <= 1.0
    floats = graph.dtype[whole] in FLOATS
    least = LIMITS.native_elements if floats else LIMITS.native_whole_elements
    if fuse[whole] and not simple:
        least = LIMITS.tree_elements
    if graph.elements[whole] < least:
        return None
    few = simple and sum(costs) <= LIMITS.inside_operations
    only = not fuse[whole] and len(graph.user_lists[whole]) == 1
    inside = [whole] if few and only and graph.masks.fuse[whole, 1] else []
    return inside, float(graph.elements[whole]) * context.costs.native_tree_ns


def _in_library(graph: Graph, node: int) -> bool:
    return graph.units[graph.default.unit[node]].kind is UnitKind.LIBRARY


def _copies_only_for(graph: Graph, root: int) -> list[int]:
    """Copies of parts that only the default cluster of a root reads; they may be fused into it."""
    inside, stack, copies = {root}, [root], set()
    while stack:
        for operand in graph.operand_lists[stack.pop()]:
            if graph.default.fuse[operand]:
                if operand not in inside:
                    inside.add(operand)
                    stack.append(operand)
            elif graph.ops[operand].name in _VIEWS and graph.masks.fuse[operand, 1]:
                copies.add(operand)
    shared = {n for n in inside if any(u not in inside for u in graph.user_lists[n])} - {root}
    if shared:
        return []
    return [c for c in copies if all(u in inside for u in graph.user_lists[c])]


STEP: Final = Step(
    name="reductions",
    summary="Reductions to scalars in scalar code, or from copies, become trees.",
    apply=apply,
    after=("small runs",),
    min_saved_share=0.01,
    limits=LIMITS,
)
