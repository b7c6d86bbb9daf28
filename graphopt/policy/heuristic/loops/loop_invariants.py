"""What all iterations of a loop compute alike is computed once, ahead of it.

Such as copies of a matrix into the layout, or into the order, that a product wants. And tall matrices by
vectors, as in every regression on a few features, are scalar code in XLA: the loop reads the matrix turned,
with few long rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.costs.tall_matrices import tall_costs
from graphopt.hlo import Decisions
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.loops.invariants import Plan, plan_of
from graphopt.hlo.restructure.rows.loops.rearranged import Rearranged
from graphopt.hlo.restructure.sites import Candidate
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step


def apply(context: Context) -> Edit | None:
    """Computes ahead of loops what they share, of loops in loops as far out as it is shared."""
    code = CODE["invariants"]
    wanted = context.decisions.copy()
    saved, done = 0.0, set[int | Rearranged]()
    allowed = np.flatnonzero(context.masks.restructure[:, code])
    for node in allowed.tolist()[::-1]:  # callers before callees
        if wanted.restructure[node]:
            continue
        plan = plan_of(Candidate(context.graph, node))
        ns = _saved_ns(context, node, plan, wanted, done)
        if ns > 0.0:
            wanted.restructure[node] = code
            wanted.restructure[list(plan.dots)] = 0
            done.update(plan.kernels, plan.dots, plan.rearranged)
            saved += ns
    return context.edit(wanted, saved, "what iterations compute alike is computed once")


def _saved_ns(
    context: Context, loop: int, plan: Plan, decisions: Decisions, done: set[int | Rearranged]
) -> float:
    """Nanoseconds of a run that a plan saves beyond what is done already."""
    once = context.executions(loop)
    total = -once * plan.turned * context.costs.moved_ns
    for root in plan.kernels:
        if root not in done:
            total += _kernel_ns(context, root) * (context.executions(root) - once)
    for node, operand in plan.dots.items():
        if node in done:
            continue
        cost = tall_costs(context.graph, node, operand, context.costs)
        stored = cost.stored_ns
        if decisions.restructure[node]:
            reduced = context.model.product(node).reduced_ns
            stored = stored if reduced is None else min(stored, reduced)
        total += (stored - cost.turned_ns) * context.executions(node)
    for kept in plan.rearranged:
        if decisions.restructure[kept.node] == CODE[kept.row] and kept not in done:
            total += _rearranged_ns(context, kept) * (context.executions(kept.node) - once)
    return total


def _rearranged_ns(context: Context, kept: Rearranged) -> float:
    """Nanoseconds of bringing an operand of a product into another order."""
    graph, costs = context.graph, context.costs
    name = DType(int(graph.dtype[kept.node])).name.lower()
    elements = int(graph.elements[graph.operand_lists[kept.node][kept.operand]])
    return elements * costs.moved_ns * costs.slower_products.get(name, 1.0)


def _kernel_ns(context: Context, root: int) -> float:
    """Nanoseconds of a kernel, its dispatch included."""
    inside = context.is_inside_native(root)
    computation = int(context.graph.computation[root])
    dispatch = context.costs.native_kernel_ns if inside else context.model.thunk_ns(computation)
    return dispatch + context.model.cluster_ns(context.graph.default.fuse, root)


STEP: Final = Step(
    name="loop invariants",
    summary="What iterations compute alike is computed once; tall matrices times vectors are read turned.",
    apply=apply,
    after=("native loops", "ahead of loops", "small products"),
    min_saved_ns=500.0,
    min_saved_share=0.01,
)
