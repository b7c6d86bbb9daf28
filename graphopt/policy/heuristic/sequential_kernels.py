"""Computations of many short kernels, which one thread runs in order sooner than several share them out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.hlo.graph.walks import first_parameter
from graphopt.hlo.module.index import Role
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.schedule import IN_ORDER_THUNKS
from graphopt.hlo.restructure import CODE, ON_CALLER, dispatch_code
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    In order, no kernel runs beside another: kernels on several cores no longer overlap with others, and what
    XLA would hand to a worker is not done at the same time.
    """

    max_beside_ns: float = limit(
        700_000.0, "ns", "more work beside the longest kernel gains from further threads"
    )
    max_overlap: float = limit(
        0.1, "of that work", "the most that kernels on several cores may take, which may overlap"
    )
    max_handed_out: float = limit(
        0.25, "of that work", "the same where XLA hands kernels out, which costs more"
    )
    hand_outs: float = limit(
        1.0,
        "hand-overs",
        "what handing out costs wherever XLA does so, waiting for workers included",
    )


LIMITS: Final = Limits()


@dataclass(frozen=True)
class Sequence:
    """The kernels of a computation, as XLA's executor sees them; times are estimates per execution.

    Attributes:
        kernels: how many there are, a native region counted as one.
        ready: most that wait for the same number of kernels before them: about how many are ready at once.
        total_ns: of all kernels.
        longest_ns: of the longest kernel on one core.
        overlap_ns: of those that run on several cores.
    """

    kernels: int
    ready: int
    total_ns: float
    longest_ns: float
    overlap_ns: float

    @property
    def is_handed_out(self) -> bool:
        """XLA hands a part of the kernels to workers."""
        return self.ready > IN_ORDER_THUNKS

    @property
    def beside_ns(self) -> float:
        """What might run beside the longest kernel."""
        return self.total_ns - self.longest_ns

    @property
    def is_best_in_order(self) -> bool:
        """Little runs on several cores, or would on further threads."""
        share = LIMITS.max_handed_out if self.is_handed_out else LIMITS.max_overlap
        short = self.beside_ns <= LIMITS.max_beside_ns
        return short and self.overlap_ns <= share * self.beside_ns


def apply(context: Context) -> Edit | None:
    """Runs the kernels of computations in order where handing them out costs more than it gains."""
    graph, masks = context.graph, context.masks.restructure
    wanted = context.decisions.copy()
    saved = 0.0
    for index in range(len(graph.computations)):
        node = first_parameter(graph, index)
        if node is None or not masks[node, CODE["sequential"]] or _is_gone(context, index):
            continue
        gain = _saved_ns(context, index)
        if gain > 0.0:
            on_caller = bool(ON_CALLER[wanted.restructure[node]])
            wanted.restructure[node] = dispatch_code(on_caller, in_order=True)
            saved += gain * context.executions(node)
    return context.edit(wanted, saved, "short kernels, in order on one thread")


def _is_gone(context: Context, index: int) -> bool:
    """True for a computation inside native code, or of a loop that is replaced."""
    caller = context.graph.computations[index].caller
    replaced = caller is not None and context.decisions.restructure[caller] != 0
    return bool(replaced or index in context.inside_native)


def _saved_ns(context: Context, index: int) -> float:
    """Nanoseconds per execution of a computation that running its kernels in order saves; 0 if none."""
    sequence, costs = sequence_of(context, index), context.costs
    if sequence.kernels <= IN_ORDER_THUNKS or not sequence.is_best_in_order:
        return 0.0
    saved = sequence.kernels * (costs.thunk_ns - costs.short_thunk_ns)
    if context.graph.computations[index].role is Role.LOOP_BODY:
        saved += costs.loop_ns - costs.short_loop_ns
    if sequence.is_handed_out:
        saved += LIMITS.hand_outs * costs.handover_ns
    return saved


def sequence_of(context: Context, index: int) -> Sequence:
    """The kernels of a computation under the decisions so far."""
    graph, decisions = context.graph, context.decisions
    computation = graph.computations[index]
    depth: dict[int, int] = {}
    at_depth: dict[int, int] = {}
    single, several, was_native = [0.0], [0.0], False
    for node in range(computation.first, computation.end):
        before = max((depth.get(o, 0) for o in graph.operand_lists[node]), default=0)
        depth[node] = before
        if decisions.fuse[node] or decisions.join[node] or _is_free(context, node):
            continue
        depth[node] = before + 1
        native = decisions.unit[node] == context.native
        merged, was_native = native and was_native, bool(native)
        ns = _kernel_ns(context, node)
        if merged:
            single[-1] += ns
            continue
        at_depth[before] = at_depth.get(before, 0) + 1
        (several if _uses_cores(context, node) else single).append(ns)
    return Sequence(
        kernels=len(single) + len(several) - 2,
        ready=max(at_depth.values(), default=0),
        total_ns=sum(single) + sum(several),
        longest_ns=max(single),
        overlap_ns=sum(several),
    )


def _is_free(context: Context, node: int) -> bool:
    """True for what no thunk executes: parameters, tuples, views of arrays in memory."""
    graph = context.graph
    op = graph.ops[node]
    if op.name == "bitcast":
        return not context.decisions.fuse[graph.operand_lists[node][0]]
    return op.kind is OpKind.STRUCTURE


def _is_product(context: Context, root: int) -> bool:
    """True for a matrix product that the library or the runtime computes."""
    decisions = context.decisions
    as_loops = decisions.unit[root] == context.native or decisions.restructure[root] != 0
    return context.graph.ops[root].name == "dot" and not as_loops


def _uses_cores(context: Context, root: int) -> bool:
    """True for a kernel that runs on several cores."""
    graph = context.graph
    unit = graph.units[context.decisions.unit[root]]
    split = unit.kind is UnitKind.LOOP and unit.threads > 1
    by_library = unit.kind is UnitKind.LIBRARY or graph.ops[root].name == "convolution"
    return split or by_library or _is_product(context, root)


def _kernel_ns(context: Context, root: int) -> float:
    """Nanoseconds of one execution of a kernel."""
    graph, model = context.graph, context.model
    if graph.ops[root].name == "convolution" and context.decisions.unit[root] != context.native:
        return math.inf  # unknown, and mostly long
    if root in model.callees:
        loop = model.control(root)
        native = context.decisions.unit[root] == context.native
        return loop.native_ns() if native else loop.default_ns(model.cores)
    if is_wall(graph, root):
        return wall_costs(graph, root, context.costs)[0]
    if _is_product(context, root):
        return model.product(root).library_ns
    return model.cluster_ns(context.decisions.fuse, root, plain_products=True)


STEP: Final = Step(
    name="sequential kernels",
    summary="Computations of many short kernels run them in order, instead of handing them to workers.",
    apply=apply,
    after=("caller thread",),
    min_saved_share=0.01,
    min_saved_ns=500.0,
    limits=LIMITS,
)
