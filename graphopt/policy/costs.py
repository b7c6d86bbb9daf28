"""A rough time model of XLA:CPU, enough for a hand-written heuristic.

Times are nanoseconds on one core. The constants are orders of magnitude from measurements on x86 with
AVX2 code generation; decisions built on them keep a margin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Graph
from graphopt.hlo.clusters import window_size
from graphopt.hlo.module import Role
from graphopt.hlo.ops import OpKind
from graphopt.hlo.schema import HloInstructionProto
from graphopt.policy import recompute
from graphopt.policy.walls import is_wall, wall_costs

THUNK_NS: Final = 55.0
"""Dispatch of one kernel by the thunk executor."""

OPERATIONS_PER_NS: Final = 12.0
"""Vectorised additions; one unit of `Op.cost`."""

SCALAR_OPERATIONS_PER_NS: Final = 1.5
"""The same in code that does not vectorise (gathers, indices, loops of a few elements)."""

BYTES_PER_NS: Final = 10.0
"""Memory bandwidth of one core beyond its caches."""

CACHED_BYTES_PER_NS: Final = 40.0
"""The same inside the second-level cache."""

RUNTIME_CALL_NS: Final = 400.0
"""A call of the matrix library, whatever its size."""

DOT_FLOPS_PER_NS: Final = 40.0
"""Matrix products by the library."""

NATIVE_VECTOR_FLOPS_PER_NS: Final = 20.0
NATIVE_DOT_FLOPS_PER_NS: Final = 3.5
"""Products of a matrix and a vector, and of two matrices, by the plain loops in native code."""

LOOP_NS: Final = 150.0
"""One iteration of a while loop run by the thunk executor, beside its kernels."""

SCALAR_CODE: Final = 1.0
ARRAY_CODE: Final = 2.5
WALL_CODE: Final = 40.0
"""Compile time of a scalar operation, of a loop over an array, and of a replaced wall, inside native
code; relative to each other."""


@dataclass
class LoopCosts:
    """Estimated time of one computation, once through, inner loops included.

    Attributes:
        dispatch_ns: what the thunk executor adds.
        library_ns: matrix products by the library and other runtime calls.
        native_dot_ns: the same as plain loops.
        work_ns: all other kernels on one core.
        parallel_ns: the part of `work_ns` that XLA splits over cores.
        code: length of the native code, inner computations included; one unit is a scalar operation.
    """

    dispatch_ns: float = 0.0
    library_ns: float = 0.0
    native_dot_ns: float = 0.0
    work_ns: float = 0.0
    parallel_ns: float = 0.0
    code: float = 0.0

    def add(self, other: LoopCosts, times: float) -> None:
        """Adds `other`, run `times` times."""
        self.dispatch_ns += other.dispatch_ns * times
        self.library_ns += other.library_ns * times
        self.native_dot_ns += other.native_dot_ns * times
        self.work_ns += other.work_ns * times
        self.parallel_ns += other.parallel_ns * times
        self.code += other.code

    def default_ns(self, cores: int) -> float:
        """Time as XLA runs it."""
        saved = self.parallel_ns * (1.0 - 1.0 / cores)
        return self.dispatch_ns + self.library_ns + self.work_ns - saved

    def native_ns(self) -> float:
        """Time as one native function on one core."""
        return self.native_dot_ns + self.work_ns


class CostModel:
    """Costs of every computation of a graph under XLA's own decisions."""

    def __init__(self, graph: Graph) -> None:
        """Computes all costs, callees first."""
        self.graph = graph
        self.cores = max(unit.threads for unit in graph.units)
        self.work = node_work(graph)
        self.computations: list[LoopCosts] = []
        self.callees: dict[int, list[int]] = {}
        for index, computation in enumerate(graph.computations):
            if computation.caller is not None:
                self.callees.setdefault(computation.caller, []).append(index)
        for index in range(len(graph.computations)):
            self.computations.append(self._computation(index))

    def _computation(self, index: int) -> LoopCosts:
        graph = self.graph
        computation = graph.computations[index]
        total = LoopCosts()
        for node in range(computation.first, computation.end):
            op = graph.ops[node]
            if op.kind is OpKind.STRUCTURE or op.name == "bitcast":
                continue
            total.code += SCALAR_CODE if graph.elements[node] <= 1 else ARRAY_CODE
            if node in self.callees:
                total.add(self.control(node), 1.0)
                continue
            if is_wall(graph, node):
                call, replacement = wall_costs(graph, node)
                total.library_ns += call
                total.native_dot_ns += replacement
                total.dispatch_ns += THUNK_NS
                total.code += WALL_CODE
                continue
            if op.name == "dot":
                flops = dot_flops(graph, node)
                total.library_ns += RUNTIME_CALL_NS + flops / DOT_FLOPS_PER_NS
                total.native_dot_ns += native_dot_ns(graph, node)
            total.work_ns += self.work[node]
            if not graph.default.fuse[node]:
                total.dispatch_ns += THUNK_NS
                if graph.units[graph.default.unit[node]].threads > 1:
                    total.parallel_ns += self.work[node]
        return total

    @cached_property
    def shares(self) -> list[tuple[float, ...]]:
        """Operand elements evaluated per result element, per node and operand."""
        return recompute.shares(self.graph)

    @cached_property
    def _evaluated(self) -> list[float]:
        """Nanoseconds of all evaluations of each node under XLA's own decisions."""
        times = recompute.copies(self.graph, self.shares)
        return [ns * count for ns, count in zip(self.work, times, strict=True)]

    def cluster_ns(
        self, fuse: NDArray[np.bool_], root: int, *, plain_products: bool = False
    ) -> float:
        """Nanoseconds of one kernel on one core, what is fused into it computed as often as XLA does.

        Args:
            fuse: bool [N]; True where a node is computed inside its users.
            root: of the kernel.
            plain_products: matrix products are plain loops, not calls of the library.
        """
        evaluated = self._evaluated
        seen, stack, total = {root}, [root], 0.0
        while stack:
            node = stack.pop()
            total += evaluated[node]
            if plain_products and self.graph.ops[node].name == "dot":
                total += native_dot_ns(self.graph, node)
            for operand in self.graph.operand_lists[node]:
                if operand not in seen and fuse[operand]:
                    seen.add(operand)
                    stack.append(operand)
        return total

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
            total.dispatch_ns += LOOP_NS * trips(graph, inside[0])
        return total


def trips(graph: Graph, computation: int) -> float:
    """Iterations of the loop that a body or condition belongs to."""
    from graphopt.hlo.graph import UNKNOWN_TRIPS

    known = graph.computations[computation].trip_count
    return UNKNOWN_TRIPS if known is None else float(known)


def node_work(graph: Graph) -> list[float]:
    """Nanoseconds to compute each node once on one core, memory traffic of roots included."""
    out = []
    fused = graph.default.fuse.tolist()
    elements, nbytes = graph.elements.tolist(), graph.nbytes.tolist()
    for node, op in enumerate(graph.ops):
        if op.kind is OpKind.STRUCTURE or op.kind is OpKind.CONTROL or op.name == "bitcast":
            out.append(0.0)
            continue
        count = elements[node]
        moved = nbytes[node]
        frozen = graph.source.frozen[node]
        if frozen is not None and frozen[1] == "in-place-update" and op.name != "bitcast":
            # Only the update is written.
            update = graph.operand_lists[node][1]
            count, moved = elements[update], nbytes[update]
        if op.name == "reduce" and graph.operand_lists[node]:
            count = max(count, elements[graph.operand_lists[node][0]])
        if op.name == "reduce-window":
            count *= window_size(graph, node)
        vector = count >= 16 and op.name not in ("gather", "dynamic-slice", "reduce-window")
        rate = OPERATIONS_PER_NS if vector else SCALAR_OPERATIONS_PER_NS
        ns = count * op.cost / rate
        if not fused[node]:
            ns += moved / (BYTES_PER_NS if moved > 1 << 19 else CACHED_BYTES_PER_NS)
        out.append(ns)
    return out


def dot_flops(graph: Graph, node: int) -> float:
    """Multiplications and additions of a dot."""
    numbers = HloInstructionProto.FromString(graph.source.attributes[node]).dot_dimension_numbers
    dims = graph.dim_lists[graph.operand_lists[node][0]]
    flops = 2.0 * float(graph.elements[node])
    for dimension in numbers.lhs_contracting_dimensions:
        flops *= dims[dimension]
    return flops


def native_dot_ns(graph: Graph, node: int) -> float:
    """Nanoseconds of a dot as plain loops: fast where one side is a vector, slow for two matrices."""
    numbers = HloInstructionProto.FromString(graph.source.attributes[node]).dot_dimension_numbers
    left, right = graph.operand_lists[node]
    shared = 1
    for dimension in (*numbers.lhs_batch_dimensions, *numbers.lhs_contracting_dimensions):
        shared *= graph.dim_lists[left][dimension]
    vector = min(graph.elements[left], graph.elements[right]) == shared
    rate = NATIVE_VECTOR_FLOPS_PER_NS if vector else NATIVE_DOT_FLOPS_PER_NS
    return dot_flops(graph, node) / rate
