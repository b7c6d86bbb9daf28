"""A rough time model of XLA:CPU, enough for a hand-written heuristic.

Times are nanoseconds on one core. What single things cost is `graphopt.machine.CpuCosts`, orders of
magnitude; decisions built on them keep a margin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs import evaluations
from graphopt.costs.elements import element_ns, reduced_ns, tiled_ns
from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.costs.products import ProductCosts, product_costs
from graphopt.costs.rows import MOVES, native_rows_ns
from graphopt.costs.windows import WindowCosts, window_costs
from graphopt.hlo import Graph
from graphopt.hlo.graph.tiled import MIN_ELEMENTS, holds_complex, is_tiled
from graphopt.hlo.graph.walks import fused_into, own_kernel, roots_around
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
            the tiled code generator makes vector code of; what windows take less, below zero.
        work_ns: all other kernels on one core.
        parallel_ns: the part of `work_ns` that XLA splits over cores.
        code: length of the native code, inner computations included; one unit is a scalar operation.
        iteration_ns: what the thunk executor adds to every iteration, if this is a loop's body.
    """

    dispatch_ns: float = 0.0
    library_ns: float = 0.0
    native_dot_ns: float = 0.0
    reduced_ns: float = 0.0
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
        self.work_ns += other.work_ns * times
        self.parallel_ns += other.parallel_ns * times
        self.code += other.code

    def be_native(self) -> None:
        """Makes the default's time that of native code, which XLA chose by itself."""
        self.library_ns = self.native_dot_ns + self.reduced_ns
        self.dispatch_ns = self.parallel_ns = 0.0

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
        self.tiled_extra = tiled_extra(graph, self.costs)
        self.windows = all_windows(graph, self.costs)
        self.work = node_work(graph, self.costs, self.loop_extra, self.windows)
        self._products: dict[int, ProductCosts] = {}
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

    def _computation(self, index: int) -> LoopCosts:
        graph = self.graph
        computation = graph.computations[index]
        nodes = [n for n in range(computation.first, computation.end) if _is_run(graph, n)]
        kernels = sum(not graph.default.fuse[node] for node in nodes)
        short = kernels <= self.costs.short_sequence
        thunk_ns = self.costs.short_thunk_ns if short else self.costs.thunk_ns
        total = LoopCosts()
        total.iteration_ns = self.costs.short_loop_ns if short else self.costs.loop_ns
        for node in nodes:
            total.code += self.code_length(node)
            if node in self.callees:
                total.add(self.control(node), 1.0)
                continue
            if is_wall(graph, node):
                call, replacement = wall_costs(graph, node, self.costs)
                total.library_ns += call
                total.native_dot_ns += replacement
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
        if node in self.windows:
            total.reduced_ns += self.windows[node].native_ns - self.windows[node].loop_ns
        total.work_ns += self.work[node]
        total.reduced_ns += self.loop_extra.get(node, 0.0) + self.tiled_extra.get(node, 0.0)
        if name in MOVES:
            total.reduced_ns += native_rows_ns(self.graph, node, self.costs)

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
            self._products[node] = product_costs(self.graph, node, self.costs)
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
        """Nanoseconds that a kernel of XLA's own takes longer in native code than as a tiled one."""
        if not self.tiled_extra:
            return 0.0
        return sum(self.tiled_extra.get(node, 0.0) for node in own_kernel(self.graph, root))

    def members(self, fuse: NDArray[np.bool_], root: int) -> list[int]:
        """The root of a kernel and all that is fused into it."""
        return fused_into(self.graph, fuse, root)

    def control(self, node: int) -> LoopCosts:
        """All iterations of a loop, or the mean of a conditional's branches."""
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
        if graph.units[graph.default.unit[node]].kind is UnitKind.NATIVE:
            total.be_native()
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


def all_windows(graph: Graph, costs: CpuCosts) -> dict[int, WindowCosts]:
    """Costs of every reduce-window."""
    nodes = (node for node, op in enumerate(graph.ops) if op.name == "reduce-window")
    return {node: window_costs(graph, node, costs) for node in nodes}


def node_work(
    graph: Graph,
    costs: CpuCosts | None = None,
    library: Collection[int] | None = None,
    windows: Mapping[int, WindowCosts] | None = None,
) -> list[float]:
    """Nanoseconds to compute each node once on one core, memory traffic of roots included.

    Args:
        graph: of the program.
        costs: of the machine; this one's if None.
        library: reductions that the library computes, if they are known already.
        windows: costs of every reduce-window, likewise.
    """
    costs = costs or own_costs()
    out = []
    fused = graph.default.fuse.tolist()
    elements, nbytes = graph.elements.tolist(), graph.nbytes.tolist()
    library = library_extra(graph, costs) if library is None else library
    windows = all_windows(graph, costs) if windows is None else windows
    for node, op in enumerate(graph.ops):
        if op.kind is OpKind.STRUCTURE or op.kind is OpKind.CONTROL or op.name == "bitcast":
            out.append(0.0)
            continue
        written = _written(graph, node)
        if node in windows:
            ns = windows[node].loop_ns
        else:
            ns = compute_ns(graph, node, costs, elements[written], node in library)
        if not fused[node]:
            moved = nbytes[written]
            cached = moved <= costs.cached_bytes
            ns += moved / (costs.cached_bytes_per_ns if cached else costs.bytes_per_ns)
        out.append(ns)
    return out


def _written(graph: Graph, node: int) -> int:
    """The node whose elements are computed and written: the update, where a node writes in place."""
    frozen = graph.source.frozen[node]
    if frozen is not None and frozen[1] == "in-place-update":
        return graph.operand_lists[node][1]
    return node


def compute_ns(graph: Graph, node: int, costs: CpuCosts, count: int, in_library: bool) -> float:
    """Nanoseconds to compute `count` elements of a node; a reduction is computed as a whole."""
    op = graph.ops[node]
    if op.name == "reduce":
        read = float(max(graph.elements[node], graph.elements[graph.operand_lists[node][0]]))
        return read * (costs.sum_rows_ns if in_library else reduced_ns(graph, node, costs))
    if in_library:
        return count * costs.library_function_ns
    if count < costs.few_elements:
        return count * op.cost / costs.scalar_operations_per_ns
    if op.name == "gather":
        return count * costs.gather_ns
    if evaluations.turns(graph, node):
        return count * costs.turn_ns
    return count * element_ns(graph, node, costs=costs)


def library_extra(graph: Graph, costs: CpuCosts | None = None) -> dict[int, float]:
    """Reductions and slow functions in calls of the library -> what they take longer in a loop kernel, ns."""
    costs = costs or own_costs()
    fused = graph.default.fuse
    inside = [False] * len(graph)
    out = {}
    for node in range(len(graph) - 1, -1, -1):
        if fused[node]:
            inside[node] = any(inside[user] for user in graph.user_lists[node])
        else:
            inside[node] = graph.units[graph.default.unit[node]].kind is UnitKind.LIBRARY
        if inside[node] and graph.ops[node].name == "reduce":
            read = float(graph.elements[graph.operand_lists[node][0]])
            out[node] = read * (reduced_ns(graph, node, costs) - costs.sum_rows_ns)
        elif inside[node] and graph.ops[node].name in costs.function_ns:
            extra = element_ns(graph, node, costs=costs) - costs.library_function_ns
            if extra > 0.0:
                out[node] = float(graph.elements[node]) * extra
    return out


def tiled_extra(graph: Graph, costs: CpuCosts) -> dict[int, float]:
    """Operations that the tiled code generator computes -> what they take longer in native code, ns."""
    out = {}
    for node, op in enumerate(graph.ops):
        if op.name not in costs.looped_functions_ns or graph.elements[node] < MIN_ELEMENTS:
            continue
        longer = -tiled_ns(graph, node, costs)
        if longer > 0.0 and _is_in_tiles(graph, node):
            out[node] = float(graph.elements[node]) * longer
    return out


def _is_in_tiles(graph: Graph, node: int) -> bool:
    """True for a node of a kernel that XLA's tiled code generator takes and makes vector code of."""
    return any(
        graph.units[graph.default.unit[root]].kind is UnitKind.LOOP
        and is_tiled(graph, root, members := own_kernel(graph, root))
        and not holds_complex(graph, members)
        for root in roots_around(graph, graph.default.fuse, node)
    )
