"""A rough time model of XLA:CPU, enough for a hand-written heuristic.

Times are nanoseconds on one core. What single things cost is `graphopt.machine.CpuCosts`, orders of
magnitude; decisions built on them keep a margin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs import evaluations
from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.costs.products import ProductCosts, product_costs
from graphopt.costs.rows import moves_extra, narrow_places_extra
from graphopt.costs.sliced_reductions import sliced_costs
from graphopt.costs.turned_products import TurnedForms
from graphopt.costs.work import all_windows, library_extra, node_work, tiled_extra
from graphopt.hlo import Graph
from graphopt.hlo.graph.walks import fused_into, own_kernel
from graphopt.hlo.module.index import Role
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import CpuCosts, UnitKind, own_costs

MIN_SAVED_NS: Final = 500.0
MIN_SAVED_SHARE: Final = 0.01
"""What kernels that are written in another way must save together, in one run and as a part of its time:
below, writing the module again takes longer than it is worth."""


SCALAR_CODE: Final = 1.0
ARRAY_CODE: Final = 2.5
WALL_CODE: Final = 40.0
DOT_CODE: Final = 60.0
BLOCKS_CODE: Final = 250.0
"""Compile time of a scalar operation, of a loop over an array, of a replaced wall, of a matrix product and of
one in blocks, inside native code; relative to each other."""


@dataclass
class LoopCosts:
    """Estimated time of one computation, once through, inner loops included.

    Attributes:
        dispatch_ns: what the thunk executor adds.
        library_ns: what the library computes, and other runtime calls.
        native_dot_ns: matrix products and those other calls in native code.
        reduced_ns: what else the library computes, there, what moves of rows take longer, and what only
            the tiled code generator makes vector code of; what windows and reductions in slices take less,
            below zero.
        lost_ns: what products, calls, moves of rows, and what only the tiled code generator makes vector code
            of take longer in native code, each; zero for those that gain.
        work_ns: all other kernels on one core.
        parallel_ns: the part of `work_ns` that XLA splits over cores.
        code: length of the native code, inner computations included; one unit is a scalar operation.
        iteration_ns: what the thunk executor adds to every iteration, if this is a loop's body.
    """

    dispatch_ns: float = 0.0
    library_ns: float = 0.0
    native_dot_ns: float = 0.0
    reduced_ns: float = 0.0
    lost_ns: float = 0.0
    work_ns: float = 0.0
    parallel_ns: float = 0.0
    code: float = 0.0
    iteration_ns: float = 0.0

    def add(self, other: LoopCosts, times: float) -> None:
        """Adds `other`, run `times` times."""
        self.dispatch_ns += other.dispatch_ns * times
        self.library_ns += other.library_ns * times
        self.native_dot_ns += other.native_dot_ns * times
        self.reduced_ns += other.reduced_ns * times
        self.lost_ns += other.lost_ns * times
        self.work_ns += other.work_ns * times
        self.parallel_ns += other.parallel_ns * times
        self.code += other.code

    def be_native(self) -> None:
        """Makes the default's time that of native code, which XLA chose by itself."""
        self.library_ns = self.native_dot_ns + self.reduced_ns
        self.dispatch_ns = self.parallel_ns = self.lost_ns = 0.0

    def default_ns(self, cores: int) -> float:
        """Time as XLA runs it."""
        saved = min(self.parallel_ns, self.work_ns) * (1.0 - 1.0 / cores)
        return self.dispatch_ns + self.library_ns + self.work_ns - saved

    def native_ns(self) -> float:
        """Time as one native function on one core."""
        return self.native_dot_ns + self.reduced_ns + self.work_ns


class CostModel:
    """Costs of every computation of a graph under XLA's own decisions."""

    def __init__(self, graph: Graph, costs: CpuCosts | None = None) -> None:
        """Computes all costs, callees first.

        Args:
            graph: of the program.
            costs: of the machine; this one's if None.
        """
        self.graph = graph
        self.costs = costs or own_costs()
        self.cores = max(unit.threads for unit in graph.units)
        self.loop_extra = library_extra(graph, self.costs)
        self.in_native = moves_extra(graph, self.costs) | tiled_extra(graph, self.costs)
        self.in_native |= narrow_places_extra(graph, self.costs)
        self.windows = all_windows(graph, self.costs)
        self.sliced = sliced_costs(graph, self.costs)
        self.work = node_work(graph, self.costs, self.loop_extra, self.windows)
        self._products: dict[int, ProductCosts] = {}
        self._turned = TurnedForms(graph, self.costs)
        self.computations: list[LoopCosts] = []
        self.callees: dict[int, list[int]] = {}
        for index, computation in enumerate(graph.computations):
            if computation.caller is not None:
                self.callees.setdefault(computation.caller, []).append(index)
        for index in range(len(graph.computations)):
            self.computations.append(self._computation(index))

    @cached_property
    def rewriting_ns(self) -> float:
        """Nanoseconds of one run that kernels written in another way must save together."""
        return max(MIN_SAVED_NS, MIN_SAVED_SHARE * self.computations[-1].default_ns(self.cores))

    @cached_property
    def _is_short(self) -> list[bool]:
        """Per computation: it has so few kernels that the executor runs them one after the other."""
        graph = self.graph
        kernels = [0] * len(graph.computations)
        for node, fused in enumerate(graph.default.fuse.tolist()):
            if not fused and _is_run(graph, node):
                kernels[int(graph.computation[node])] += 1
        return [count <= self.costs.short_sequence for count in kernels]

    def thunk_ns(self, index: int) -> float:
        """Nanoseconds of dispatching one kernel of a computation."""
        return self.costs.short_thunk_ns if self._is_short[index] else self.costs.thunk_ns

    def _computation(self, index: int) -> LoopCosts:
        graph = self.graph
        computation = graph.computations[index]
        nodes = [n for n in range(computation.first, computation.end) if _is_run(graph, n)]
        thunk_ns = self.thunk_ns(index)
        total = LoopCosts()
        total.iteration_ns = (
            self.costs.short_loop_ns if self._is_short[index] else self.costs.loop_ns
        )
        for node in nodes:
            total.code += self.code_length(node)
            if node in self.callees:
                total.add(self.control(node), 1.0)
                continue
            if is_wall(graph, node):
                call, replacement = wall_costs(graph, node, self.costs)
                total.library_ns += call
                total.native_dot_ns += replacement
                total.lost_ns += max(0.0, replacement - call)
                total.dispatch_ns += thunk_ns
                total.code += WALL_CODE
                continue
            self._add_work(total, node)
            if not graph.default.fuse[node]:
                self._add_kernel(total, node, thunk_ns)
        return total

    def _add_work(self, total: LoopCosts, node: int) -> None:
        """Adds what a node of a kernel computes."""
        name = self.graph.ops[node].name
        if name == "dot":
            product = self.product(node)
            total.library_ns += product.library_ns
            total.native_dot_ns += product.native_ns
            total.lost_ns += max(0.0, product.native_ns - product.library_ns)
        if node in self.windows:
            total.reduced_ns += self.windows[node].native_ns - self.windows[node].loop_ns
        if node in self.sliced:
            reduction = self.sliced[node]
            total.reduced_ns += reduction.uncounted_ns - reduction.saved_ns
        total.work_ns += self.work[node]
        longer_ns = self.in_native.get(node, 0.0)
        total.reduced_ns += self.loop_extra.get(node, 0.0) + longer_ns
        total.lost_ns += longer_ns

    def _add_kernel(self, total: LoopCosts, root: int, thunk_ns: float) -> None:
        """Adds what the dispatch of a kernel costs, and its work if it is split over cores."""
        unit = self.graph.units[self.graph.default.unit[root]]
        if unit.kind is UnitKind.LIBRARY and self.graph.ops[root].name != "dot":
            self._add_library_call(total, root)
        elif unit.kind is UnitKind.LOOP and unit.threads > 1:
            work = sum(self.work[node] for node in self.members(self.graph.default.fuse, root))
            total.parallel_ns += work
            # The heuristic runs it on one core where that is faster.
            total.dispatch_ns += min(self.costs.handover_ns, work * (1.0 - 1.0 / unit.threads))
        else:
            total.dispatch_ns += thunk_ns

    def _add_library_call(self, total: LoopCosts, root: int) -> None:
        """Adds a call of the library for no product; its work is not done alike in native code."""
        members = self.members(self.graph.default.fuse, root)
        work = sum(self.work[node] for node in members)
        total.work_ns -= work
        total.library_ns += work
        total.reduced_ns += work
        reduces = any(self.graph.ops[node].name == "reduce" for node in members)
        costs = self.costs
        total.dispatch_ns += costs.library_reduction_ns if reduces else costs.library_call_ns

    @cached_property
    def shares(self) -> list[tuple[float, ...]]:
        """Operand elements evaluated per result element, per node and operand."""
        return evaluations.shares(self.graph)

    @cached_property
    def _evaluated(self) -> list[float]:
        """Nanoseconds of all evaluations of each node in loop kernels, fused as XLA does."""
        times = evaluations.copies(self.graph, self.shares)
        work = [ns + self.loop_extra.get(node, 0.0) for node, ns in enumerate(self.work)]
        return [ns * count for ns, count in zip(work, times, strict=True)]

    def product(self, node: int) -> ProductCosts:
        """Costs of a matrix product, worked out once."""
        if node not in self._products:
            self._products[node] = product_costs(self.graph, node, self.costs, self._turned)
        return self._products[node]

    def code_length(self, node: int, form: str | None = None) -> float:
        """Length of a node's native code, see `LoopCosts.code`.

        Args:
            node: of the graph.
            form: the restructure of a product; the fastest if None.
        """
        if self.graph.ops[node].name == "dot":
            form = form or self.product(node).native_form
            return BLOCKS_CODE if form == "dot-blocks" else DOT_CODE
        return SCALAR_CODE if self.graph.elements[node] <= 1 else ARRAY_CODE

    @cached_property
    def own_code(self) -> float:
        """Length of the program's code as XLA compiles it, products left to the library."""
        return float(np.where(self.graph.elements <= 1, SCALAR_CODE, ARRAY_CODE).sum())

    def evaluated_ns(self, node: int) -> float:
        """Nanoseconds of all evaluations of a node in loop kernels, fused as XLA does."""
        return self._evaluated[node]

    def cluster_ns(
        self, fuse: NDArray[np.bool_], root: int, *, plain_products: bool = False
    ) -> float:
        """Nanoseconds of one loop kernel on one core, what is fused into it computed as often as XLA does.

        Args:
            fuse: bool [N]; True where a node is computed inside its users.
            root: of the kernel.
            plain_products: matrix products are plain loops, not calls of the library.
        """
        evaluated = self._evaluated
        total = 0.0
        for node in self.members(fuse, root):
            total += evaluated[node]
            if plain_products and self.graph.ops[node].name == "dot":
                total += self.product(node).plain_ns
        return total

    def native_extra(self, root: int) -> float:
        """Nanoseconds that a kernel of XLA's own takes longer in native code."""
        if not self.in_native:
            return 0.0
        return sum(self.in_native.get(node, 0.0) for node in own_kernel(self.graph, root))

    def members(self, fuse: NDArray[np.bool_], root: int) -> list[int]:
        """The root of a kernel and all that is fused into it."""
        return fused_into(self.graph, fuse, root)

    def control(self, node: int) -> LoopCosts:
        """All iterations of a loop, or the mean of a conditional's branches."""
        total = self.outside(node)
        if self.graph.units[self.graph.default.unit[node]].kind is UnitKind.NATIVE:
            total.be_native()
        return total

    def outside(self, node: int) -> LoopCosts:
        """The same where the executor runs it, also if XLA makes it native; what is inside stays."""
        graph = self.graph
        total = LoopCosts()
        inside = self.callees[node]
        for index in inside:
            computation = graph.computations[index]
            branch = computation.role is Role.BRANCH
            times = 1.0 / len(inside) if branch else trips(graph, index)
            total.add(self.computations[index], times)
        if graph.ops[node].name == "while":
            total.dispatch_ns += self.iteration_ns(node) * trips(graph, inside[0])
        return total

    def iteration_ns(self, loop: int) -> float:
        """What the thunk executor adds to each iteration of a loop beside its kernels."""
        return max(self.computations[index].iteration_ns for index in self.callees[loop])


def _is_run(graph: Graph, node: int) -> bool:
    """True for nodes that are computed, by a kernel of their own or inside one."""
    op = graph.ops[node]
    return op.kind is not OpKind.STRUCTURE and op.name != "bitcast"


def trips(graph: Graph, computation: int) -> float:
    """Iterations of the loop that a body or condition belongs to."""
    from graphopt.hlo.graph.graph import UNKNOWN_TRIPS

    known = graph.computations[computation].trip_count
    return UNKNOWN_TRIPS if known is None else float(known)
