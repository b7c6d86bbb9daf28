"""The kernels of a computation as XLA's thunk executor sees them: how many, how many at once, how long."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.schedule import IN_ORDER_THUNKS
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context


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


def is_gone(context: Context, index: int) -> bool:
    """True for a computation inside native code, or of a loop that is replaced."""
    caller = context.graph.computations[index].caller
    replaced = caller is not None and context.decisions.restructure[caller] != 0
    return bool(replaced or index in context.inside_native)


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
        ns = kernel_ns(context, node)
        if merged:
            single[-1] += ns
            continue
        at_depth[before] = at_depth.get(before, 0) + 1
        (several if uses_cores(context, node) else single).append(ns)
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


def uses_cores(context: Context, root: int) -> bool:
    """True for a kernel that runs on several cores."""
    graph = context.graph
    unit = graph.units[context.decisions.unit[root]]
    split = unit.kind is UnitKind.LOOP and unit.threads > 1
    by_library = unit.kind is UnitKind.LIBRARY or graph.ops[root].name == "convolution"
    return split or by_library or _is_product(context, root)


def kernel_ns(context: Context, root: int) -> float:
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
