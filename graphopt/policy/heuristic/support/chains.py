"""Short loops whose iterations go element by element, and what they take as one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.costs.elements import FLOATS, element_ns
from graphopt.costs.model import trips
from graphopt.hlo import Graph
from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.replace.grouping import PARALLEL_ELEMENTS
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.loops.unroll import chain_elements
from graphopt.policy.heuristic.support.context import Context

UNROLL: Final = CODE["unroll"]


@dataclass(frozen=True)
class Chain:
    """A short loop that may be written out as one kernel.

    Attributes:
        loop: its node.
        default_ns: nanoseconds of all iterations by XLA's default.
        single_ns: of the kernel on one core.
        kernel_ns: of the kernel, split over the cores if its arrays are large.
    """

    loop: int
    default_ns: float
    single_ns: float
    kernel_ns: float

    @property
    def saved_ns(self) -> float:
        """What the kernel takes less."""
        return self.default_ns - self.kernel_ns


def chain_at(context: Context, loop: int) -> Chain | None:
    """The chain that a loop is; None for other loops, and those that may not be written out."""
    if not context.masks.restructure[loop, UNROLL]:
        return None
    model, elements = context.model, _elements(context.graph, loop)
    if elements is None:
        return None
    work = _work_ns(context, loop)
    kernel = work
    if elements >= PARALLEL_ELEMENTS and model.cores > 1:
        kernel = work / model.cores + context.costs.split_ns
    thunk = context.costs.thunk_ns
    default = model.control(loop).default_ns(model.cores)
    return Chain(loop, default, thunk + work, thunk + kernel)


@per_graph
def _known_elements(graph: Graph) -> dict[int, int | None]:
    """What `_elements` has found so far."""
    return {}


def _elements(graph: Graph, loop: int) -> int | None:
    """Elements of the arrays of a chain; None for other loops."""
    known = _known_elements(graph)
    if loop not in known:
        computations = graph.source.module.computations
        body = computations[graph.source.called[loop][0]].proto
        known[loop] = chain_elements(body, lambda c: computations[c].proto)
    return known[loop]


def decided_chains(context: Context) -> list[Chain]:
    """The chains that are written out as decided so far."""
    loops = np.flatnonzero(context.decisions.restructure == UNROLL).tolist()
    return [chain for chain in (chain_at(context, loop) for loop in loops) if chain is not None]


def _work_ns(context: Context, loop: int) -> float:
    """Nanoseconds of what all iterations compute, with values in registers, on one core."""
    graph, costs = context.graph, context.costs
    ns = 0.0
    for index in context.model.callees[loop]:
        computation = graph.computations[index]
        for node in range(computation.first, computation.end):
            if graph.ops[node].kind is OpKind.ELEMENTWISE and graph.ops[node].name != "copy":
                floats = int(graph.dtype[node]) in FLOATS
                rate = costs.fused_operations_per_ns if floats else costs.integer_operations_per_ns
                ns += float(graph.elements[node]) * element_ns(graph, node, rate, costs)
    return ns * trips(graph, context.model.callees[loop][0])
