"""Loops that XLA made native, but whose kernels it would split over cores, run kernel by kernel again.

From jaxlib 0.12 on XLA makes most loops one native function each, whatever the size of their arrays. Such a
function runs on one core: above some work per kernel, the other cores save more than the dispatch costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.costs.least import least_ns
from graphopt.costs.model import trips
from graphopt.machine import UnitKind
from graphopt.machine.units import unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    Estimates of long kernels are several times too long for some, so that what splitting them saves is also
    counted with what they take at the least.
    """

    min_gain: float = limit(
        0.2,
        "of the loop's time",
        "what kernels that are called one by one must be expected to save",
    )
    least_gain: float = limit(
        0.25, "of the least time", "the same if they take no longer than they must"
    )
    least_splits: float = limit(
        2.0, "times the hand-over", "what splitting a kernel must save to be counted there"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Takes loops out of native code, outermost first."""
    graph, model = context.graph, context.model
    runtime = unit_index(graph.units, UnitKind.RUNTIME)
    wanted, inside = context.decisions.copy(), set[int]()
    saved, count = 0.0, 0
    for node in sorted(model.callees, reverse=True):  # callers before callees
        if int(graph.computation[node]) in inside or wanted.unit[node] != context.native:
            continue
        gain = _gain_ns(context, node) if context.masks.unit[node, runtime] else 0.0
        if gain <= 0.0:
            inside.update(context.inside([node]))
            continue
        wanted.unit[node] = runtime
        saved += gain * context.executions(node)
        count += 1
    return context.edit(wanted, saved, f"{count} native loops back on all cores")


def _gain_ns(context: Context, loop: int) -> float:
    """Nanoseconds that a native loop takes less outside native code; 0 where that is too little."""
    native_ns = context.model.control(loop).native_ns()
    gain = native_ns - _outside_ns(context, loop)
    if gain * context.executions(loop) < context.model.rewriting_ns:
        return 0.0
    return gain if gain >= LIMITS.min_gain * native_ns and _is_sure(context, loop) else 0.0


def _is_sure(context: Context, loop: int) -> bool:
    """True for loops that gain from all cores even if their kernels take the least that they can."""
    graph, costs, fuse = context.graph, context.costs, context.graph.default.fuse
    total = gain = 0.0
    for index in context.inside([loop]):
        computation = graph.computations[index]
        for root in range(computation.first, computation.end):
            unit = graph.units[graph.default.unit[root]]
            if fuse[root] or unit.kind is not UnitKind.LOOP:
                continue
            ns = least_ns(graph, fuse, root, costs) * context.executions(root)
            handover = costs.split_ns * context.executions(root)
            saved = ns * (1.0 - 1.0 / unit.threads)
            total += ns
            gain += saved - handover if saved >= LIMITS.least_splits * handover else 0.0
    return gain >= LIMITS.least_gain * total > 0.0


def _outside_ns(context: Context, node: int) -> float:
    """Nanoseconds of a loop or conditional that the executor runs, the loops inside in their better form."""
    graph, model = context.graph, context.model
    total = model.outside(node).default_ns(model.cores)
    share = 1.0 / len(model.callees[node])
    for index in model.callees[node]:
        times = trips(graph, index) if graph.ops[node].name == "while" else share
        computation = graph.computations[index]
        for inner in range(computation.first, computation.end):
            if inner not in model.callees:
                continue
            cost, best = model.control(inner), _outside_ns(context, inner)
            if graph.ops[inner].name == "while":
                best = min(best, cost.native_ns())
            total -= (cost.default_ns(model.cores) - best) * times
    return total


STEP: Final = Step(
    name="loops over cores",
    summary="Loops that XLA made native, but whose kernels gain more from all cores, are taken apart again.",
    apply=apply,
    after=("short loops",),
    limits=LIMITS,
)
