"""Reductions to scalars that XLA computes in scalar code, or from copies, become trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.hlo import Graph
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

    tree_elements: int = limit(1024, "elements", "smallest reduction that is written as a tree")
    library_tree_elements: int = limit(
        1 << 15, "elements", "the same where the library would compute it"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Writes reductions as trees where XLA's form is slow: three cases.

    A ``reduce-window`` stands in front (scalar code), the library reads copies of parts of arrays, or native
    code computes what it adds up, one element after the other.
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
    if graph.ops[source].name == "reduce-window":
        elements = int(graph.elements[graph.operand_lists[source][0]])
        return ([], elements * costs.tree_window_ns) if elements >= LIMITS.tree_elements else None
    elements = int(graph.elements[source])
    if context.is_inside_native(node) and context.decisions.fuse[source]:
        saved: tuple[list[int], float] = ([], elements * costs.tree_copied_ns)
        return saved if elements >= LIMITS.tree_elements else None
    if elements < LIMITS.library_tree_elements or not _in_library(graph, node):
        return None
    copies = _copies_only_for(graph, node)
    return (copies, elements * costs.tree_copied_ns) if copies else None


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
