"""Loops that XLA made native, but whose kernels it would split over cores, run kernel by kernel again.

From jaxlib 0.12 on XLA makes most loops one native function each, whatever the size of their arrays. Such a
function runs on one core: above some work per kernel, the other cores save more than the dispatch costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.costs.least import least_ns
from graphopt.costs.model import trips
from graphopt.hlo.graph.layouts import is_guarded
from graphopt.hlo.module.index import device_count
from graphopt.machine import UnitKind
from graphopt.machine.units import unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import is_root
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    Estimates of some long kernels are several times too long. The gain must therefore stand also where all of
    them take the least that they can.
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
    if device_count(graph.source.module) > 1:  # the other devices run on these cores
        return None
    wanted, inside = context.decisions.copy(), set[int]()
    saved, count = 0.0, 0
    for node in sorted(model.callees, reverse=True):  # callers before callees
        native, within = wanted.unit[node] == context.native, int(graph.computation[node]) in inside
        if native and not within and _may_be_called(context, node):
            gain = _gain_ns(context, node)
            if gain > 0.0:
                wanted.unit[node] = runtime
                saved += gain * context.executions(node)
                count += 1
                continue
        if native or within:
            inside.update(model.callees[node])
    return context.edit(wanted, saved, f"{count} native loops back on all cores")


def _may_be_called(context: Context, node: int) -> bool:
    """True for a loop that the executor may run and that is not written out."""
    graph, runtime = context.graph, unit_index(context.graph.units, UnitKind.RUNTIME)
    is_loop = graph.ops[node].name == "while" and not context.decisions.restructure[node]
    return is_loop and bool(context.masks.unit[node, runtime])


def _gain_ns(context: Context, loop: int) -> float:
    """Nanoseconds that a native loop takes less outside native code; 0 where that is too little."""
    native_ns = context.model.control(loop).native_ns()
    gain = native_ns - _outside_ns(context, loop)
    if gain * context.executions(loop) < context.model.rewriting_ns:
        return 0.0
    return gain if gain >= LIMITS.min_gain * native_ns and _is_sure(context, loop) else 0.0


def _outside_ns(context: Context, node: int) -> float:
    """Nanoseconds of a loop or conditional that the executor runs, the loops inside in their better form.

    What was native is written for the loop generator, so that it loses there what native code does.
    """
    graph, model = context.graph, context.model
    outside = model.outside(node)
    total = outside.default_ns(model.cores) + outside.lost_ns
    share = 1.0 / len(model.callees[node])
    for index in model.callees[node]:
        times = trips(graph, index) if graph.ops[node].name == "while" else share
        for inner in _called_inside(context, index):
            cost, best = model.control(inner), _outside_ns(context, inner)
            if graph.ops[inner].name == "while":
                best = min(best, cost.native_ns())
            total -= (cost.default_ns(model.cores) - best) * times
    return total


def _called_inside(context: Context, index: int) -> list[int]:
    """Loops and conditionals of a computation."""
    computation = context.graph.computations[index]
    return [n for n in range(computation.first, computation.end) if n in context.model.callees]


def _is_sure(context: Context, loop: int) -> bool:
    """True for loops that gain from all cores even if their kernels take the least that they can."""
    graph, costs = context.graph, context.costs
    total = 0.0
    gain = -context.model.outside(loop).dispatch_ns * context.executions(loop)
    waiting = list(context.model.callees[loop])
    while waiting:
        index = waiting.pop()
        computation = graph.computations[index]
        for node in range(computation.first, computation.end):
            waiting += context.model.callees.get(node, ())
            if is_root(context, node):
                ns = least_ns(graph, graph.default.fuse, node, costs) * context.executions(node)
                total += ns
                gain += _split_ns(context, node, ns)
    return gain >= LIMITS.least_gain * total > 0.0


def _split_ns(context: Context, root: int, ns: float) -> float:
    """What of a kernel's nanoseconds other cores take over; 0 where it is little, or its parts are slower."""
    graph, unit = context.graph, int(context.graph.default.unit[root])
    saved = ns * (1.0 - 1.0 / graph.units[unit].threads)
    handover = context.costs.split_ns * context.executions(root)
    members = context.model.members(graph.default.fuse, root)
    if graph.units[unit].kind is not UnitKind.LOOP or is_guarded(graph, root, members, unit):
        return 0.0
    return saved if saved >= LIMITS.least_splits * handover else 0.0


STEP: Final = Step(
    name="loops over cores",
    summary="Loops that XLA made native, but whose kernels gain more from all cores, are taken apart again.",
    apply=apply,
    after=("short loops",),
    limits=LIMITS,
)
