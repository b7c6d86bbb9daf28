"""Short reductions of the kernel library, which a loop kernel computes sooner than the library is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.costs.elements import element_ns, library_reduced_ns, loop_reduced_ns
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    The call of the library also wakes worker threads, which is not in the estimate.
    """

    library_share: float = limit(0.7, "of the library's time", "below it a loop kernel takes over")


LIMITS: Final = Limits()

_LONGER: Final = frozenset({"convolution", "dot", "reduce-window"})
"""Operations that read more than the reduction behind them."""


def apply(context: Context) -> Edit | None:
    """Computes reductions in loop kernels where those are faster than the kernel library."""
    graph = context.graph
    loop, library = (unit_index(graph.units, k) for k in (UnitKind.LOOP, UnitKind.LIBRARY))
    wanted = context.decisions.copy()
    called = ~wanted.fuse & (wanted.unit == library) & context.masks.unit[:, loop]
    saved = 0.0
    for root in np.flatnonzero(called).tolist():
        members = context.model.members(wanted.fuse, root)
        ns = _saved_ns(context, members, root)
        if ns is not None:
            wanted.unit[root] = loop
            saved += ns * context.executions(root)
    return context.edit(wanted, saved, "reductions too short for a call of the library")


def _saved_ns(context: Context, members: list[int], root: int) -> float | None:
    """Nanoseconds saved by one reduction, with code around it that a loop computes as often as the library.

    None for anything else, and where a loop is not clearly faster, functions of the elements counted in.
    """
    graph, costs = context.graph, context.costs
    reductions = [node for node in members if graph.ops[node].name == "reduce"]
    if len(reductions) != 1 or any(graph.ops[node].name in _LONGER for node in members):
        return None
    (node,) = reductions
    if graph.elements[node] != graph.elements[root]:
        return None
    read = float(graph.elements[graph.operand_lists[node][0]])
    by_loop = read * loop_reduced_ns(graph, node, costs)
    by_library = library_reduced_ns(graph, node, costs)
    functions = sum(
        float(graph.elements[member]) * element_ns(graph, member, costs=costs)
        for member in members
        if graph.ops[member].name in costs.function_ns
    )
    clearly = by_loop + functions < LIMITS.library_share * (by_library + functions)
    return by_library - by_loop if clearly else None


STEP: Final = Step(
    name="short reductions",
    summary="Short reductions leave the kernel library, whose call takes longer than they do.",
    apply=apply,
    after=("library normalisations",),
    limits=LIMITS,
)
