"""Runs of small kernels outside native loops become native regions.

In bodies that run often, where regions save a good part of the time, walls and small products among them are
replaced; elsewhere only slow calls of LAPACK are, and kernels that are no calls gathered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from graphopt.costs.compiling import native_extra_ms
from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.costs.windows import KEEP, LONGEST_NATIVE_NS, SHIFTED
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.index import Role
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import (
    is_root,
    is_short,
    region_code,
    write_faster,
)
from graphopt.policy.heuristic.support.step import Step, limit
from graphopt.policy.heuristic.support.walls import opening_code


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    tiny_kernel_ns: float = limit(500.0, "ns", "kernels that spend most of their time in dispatch")
    small_kernel_ns: float = limit(2000.0, "ns", "kernels that spend a good part of it there")
    min_executions: float = limit(
        8.0, "runs", "bodies that run so often per call have walls replaced"
    )
    min_body_share: float = limit(0.05, "of a body", "what regions must save there in dispatch")
    min_saved_share: float = limit(
        0.02, "of the program", "what the regions of one computation must save"
    )
    costly_share: float = limit(
        0.1, "of the program", "the same if their code is longer than all the rest"
    )
    earned_runs: float = limit(
        150_000.0, "runs", "in which regions must save what they take longer to compile"
    )
    long_window_ns: float = limit(LONGEST_NATIVE_NS, "ns", "longer windows stay in loop kernels")
    min_window_saved_ns: float = limit(
        5_000.0, "ns", "what changing one window operation must save"
    )
    min_window_share: float = limit(
        0.01, "of the program", "the same, of which there are often several"
    )
    min_calls_ns: float = limit(20_000.0, "ns", "what replacing one call of LAPACK must save")


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Gathers small kernels of every computation outside native loops."""
    graph = context.graph
    allowed = context.masks.unit[:, context.native].tolist()
    wanted = context.decisions.copy()
    saved = 0.0
    for index, computation in enumerate(graph.computations):
        if index in context.inside_native:
            continue
        nodes = range(computation.first, computation.end)
        movable = [node for node in nodes if allowed[node] and is_root(context, node)]
        if _runs_often(graph, index):
            saved += _gather_tiny(context, wanted, index, movable)
        saved += _gather_small(context.after(wanted), wanted, movable)
        for node in movable:
            if node in context.model.windows and wanted.unit[node] != context.native:
                saved += _place_window(context, wanted, node)
            saved += _replace_slow_call(context, wanted, node)
    return context.edit(wanted, saved, "short kernels as native regions")


def _gather_small(now: Context, wanted: Decisions, movable: list[int]) -> float:
    """Makes short kernels native where that is worth it; what it saves per run of the program.

    Products have much code, and longer kernels save less for theirs. Where it is too much, they are left out.
    """
    for roots in _fewer_and_fewer(now, movable):
        saved = _saved_ns(now, roots)
        if saved > 0.0:
            wanted.unit[roots] = now.native
            return saved
    return 0.0


def _fewer_and_fewer(now: Context, movable: list[int]) -> Iterator[list[int]]:
    """Short kernels, those that are no products, and of these the tiny ones; each found when asked for."""
    small = [node for node in movable if is_short(now, node, LIMITS.small_kernel_ns)]
    yield small
    plain = [node for node in small if now.graph.ops[node].name != "dot"]
    yield plain
    yield [node for node in plain if is_short(now, node, LIMITS.tiny_kernel_ns)]


def _saved_ns(now: Context, roots: list[int]) -> float:
    """Nanoseconds per run that kernels save in native code; 0 where it is not worth its code."""
    if len(roots) < 2:
        return 0.0
    executions = now.executions(roots[0])
    thunk_ns = now.model.thunk_ns(int(now.graph.computation[roots[0]]))
    saved = (len(roots) - 1) * thunk_ns * executions
    saved += _products_gain(now, roots) * executions
    if saved <= LIMITS.min_saved_share * now.program_ns:
        return 0.0
    little = saved <= LIMITS.costly_share * now.program_ns
    if little and region_code(now, roots) > now.model.own_code:
        return 0.0
    saved -= _lost_ns(now, roots) * executions
    return saved if saved > 0.0 and _is_earned(now, roots, saved) else 0.0


def _is_earned(now: Context, roots: list[int], saved: float) -> bool:
    """True if what kernels save in native code, per run, makes up for the time that it compiles longer."""
    kernels = [now.model.members(now.decisions.fuse, root) for root in roots]
    return 1e6 * native_extra_ms(now.graph, kernels) <= LIMITS.earned_runs * saved


def _lost_ns(context: Context, roots: list[int]) -> float:
    """What kernels take longer in native code, products and walls apart."""
    return sum(context.model.native_extra(root) for root in roots)


def _products_gain(context: Context, roots: list[int]) -> float:
    """Nanoseconds by which products are faster as plain loops than by the library; less than 0 if slower."""
    graph, model = context.graph, context.model
    found = [model.product(node) for node in roots if graph.ops[node].name == "dot"]
    return sum(product.library_ns - product.plain_ns for product in found)


def _place_window(context: Context, wanted: Decisions, node: int) -> float:
    """Gives a window operation outside native code the faster form and unit; what that saves."""
    graph, window = context.graph, context.model.windows[node]
    placed = graph.units[wanted.unit[node]]
    if placed.kind is UnitKind.LIBRARY:
        return 0.0
    threads = placed.threads
    handed = context.costs.window_split_ns if threads > 1 else 0.0
    now = window.loop_ns / threads + handed
    then, form, unit = now, KEEP, int(wanted.unit[node])
    if window.is_shifted_in_loops and window.shifted_loop_ns is not None:
        then, form = window.shifted_loop_ns / threads + handed, SHIFTED
    allowed = graph.masks.unit[node, context.native] and window.native_ns <= LIMITS.long_window_ns
    if allowed and window.native_ns < then:
        then, form, unit = window.native_ns, window.native_form, context.native
    saved: float = (now - then) * context.executions(node)
    least = max(LIMITS.min_window_saved_ns, LIMITS.min_window_share * context.program_ns)
    if saved <= least:
        return 0.0
    wanted.unit[node] = unit
    if form != KEEP:
        wanted.restructure[node] = CODE[form]
    return saved


def _replace_slow_call(context: Context, wanted: Decisions, node: int) -> float:
    """Replaces LAPACK calls on so many small matrices that a loop of their own saves half; what it saves."""
    graph = context.graph
    if graph.ops[node].name != "custom-call" or not opening_code(graph, node):
        return 0.0
    call, replacement = wall_costs(graph, node, context.costs)
    least = max(LIMITS.min_calls_ns, LIMITS.min_saved_share * context.program_ns)
    if (call - 2.0 * replacement) * context.executions(node) <= least:
        return 0.0
    wanted.unit[node] = context.native
    wanted.restructure[node] = opening_code(graph, node)
    return float(call - replacement) * context.executions(node)


def _runs_often(graph: Graph, index: int) -> bool:
    computation = graph.computations[index]
    return bool(
        computation.role in (Role.LOOP_BODY, Role.BRANCH)
        and graph.executions[computation.first] >= LIMITS.min_executions
    )


def _gather_tiny(context: Context, wanted: Decisions, index: int, movable: list[int]) -> float:
    """Makes the tiny kernels of a body native where that saves a good part of its time; what it saves."""
    graph, model = context.graph, context.model
    tiny = [node for node in movable if _is_tiny(context, node)]
    saved = (len(tiny) - 1) * model.thunk_ns(index)
    if saved <= LIMITS.min_body_share * model.computations[index].default_ns(model.cores):
        return 0.0
    saved -= _lost_ns(context, tiny)
    if saved <= 0.0:
        return 0.0
    if not _is_earned(context, tiny, saved * context.executions(tiny[0])):
        return 0.0
    wanted.unit[tiny] = context.native
    for node in tiny:
        if is_wall(graph, node):
            wanted.restructure[node] = opening_code(graph, node)
        write_faster(context, wanted, node)
    return saved * context.executions(tiny[0])


def _is_tiny(context: Context, node: int) -> bool:
    """True for a kernel that spends a good part of its time in dispatch, now or when replaced."""
    graph, model, decisions = context.graph, context.model, context.decisions
    if is_wall(graph, node):
        call, replacement = wall_costs(graph, node, context.costs)
        return replacement < call + context.costs.thunk_ns
    if graph.ops[node].name == "dot":
        product = model.product(node)
        return product.native_ns < product.library_ns
    if graph.units[decisions.unit[node]].threads > 1:
        return False
    ns = model.cluster_ns(decisions.fuse, node) + model.native_extra(node)
    return ns < LIMITS.tiny_kernel_ns


STEP: Final = Step(
    name="small runs",
    summary="Runs of small kernels outside native loops become native regions.",
    apply=apply,
    after=("native loops",),
    min_saved_ns=500.0,
    min_saved_share=0.0,
    limits=LIMITS,
)
