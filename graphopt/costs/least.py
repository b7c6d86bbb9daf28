"""What a kernel takes at the least on one core, where `CostModel.cluster_ns` says what it may take.

Everything is vector code whose values stay in registers, and computed once per element, however often the
kernel reads it: LLVM finds most repetitions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.elements import FLOATS, element_ns
from graphopt.costs.work import compute_ns
from graphopt.hlo import Graph
from graphopt.hlo.graph.walks import fused_into
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import CpuCosts


def least_ns(graph: Graph, fuse: NDArray[np.bool_], root: int, costs: CpuCosts) -> float:
    """Nanoseconds of one kernel on one core, at the least.

    Args:
        graph: of the program.
        fuse: bool [N]; True where a node is computed inside its users.
        root: of the kernel.
        costs: of the machine.
    """
    members = fused_into(graph, fuse, root)
    computed = sum(_operation_ns(graph, node, costs) for node in members)
    return max(computed, moved_bytes(graph, members) / costs.cached_bytes_per_ns)


def moved_bytes(graph: Graph, members: list[int]) -> int:
    """Bytes that a kernel reads from memory and writes there, every array counted once.

    Args:
        graph: of the program.
        members: the kernel's nodes, its root first.
    """
    inside = set(members)
    read = {operand for node in inside for operand in graph.operand_lists[node]} - inside
    return int(graph.nbytes[members[0]]) + sum(int(graph.nbytes[operand]) for operand in read)


def _operation_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    op, count = graph.ops[node], int(graph.elements[node])
    if op.name in ("reduce", "gather"):
        return compute_ns(graph, node, costs, count, in_library=False)
    if op.kind is not OpKind.ELEMENTWISE or op.name == "copy":
        return 0.0
    floats = int(graph.dtype[node]) in FLOATS
    rate = costs.fused_operations_per_ns if floats else costs.integer_operations_per_ns
    return count * element_ns(graph, node, rate, costs)
