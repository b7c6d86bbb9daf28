"""What a kernel takes at the least on one core, where `CostModel.cluster_ns` says what it may take.

Elementwise operations are vector code whose values stay in registers, and each is computed once per element,
however often the kernel reads it: LLVM finds most repetitions.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.elements import FLOATS, element_ns
from graphopt.costs.work import compute_ns
from graphopt.hlo import Graph
from graphopt.hlo.graph.walks import fused_into
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import CpuCosts

_READS_A_PART: Final = frozenset({"slice", "dynamic-slice", "gather"})
"""Operations that read as much of their first operand as they give."""


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
    return max(computed, _moved_bytes(graph, members) / costs.cached_bytes_per_ns)


def _moved_bytes(graph: Graph, members: list[int]) -> int:
    """Bytes that a kernel, its root first, reads and writes at the least, each once."""
    read: dict[int, int] = {}
    inside = set(members)
    for node in members:
        for place, operand in enumerate(graph.operand_lists[node]):
            if operand not in inside:
                part = place == 0 and graph.ops[node].name in _READS_A_PART
                count = int(graph.nbytes[node if part else operand])
                read[operand] = max(read.get(operand, 0), count)
    root = members[0]
    written = root
    if graph.ops[root].name == "dynamic-update-slice":
        target, written = graph.operand_lists[root][:2]
        read.pop(target, None)
    return int(graph.nbytes[written]) + sum(read.values())


def _operation_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    op, count = graph.ops[node], int(graph.elements[node])
    if op.name in ("reduce", "gather"):
        return compute_ns(graph, node, costs, count, in_library=False)
    if op.kind is not OpKind.ELEMENTWISE or op.name == "copy":
        return 0.0
    floats = int(graph.dtype[node]) in FLOATS
    rate = costs.fused_operations_per_ns if floats else costs.integer_operations_per_ns
    return count * element_ns(graph, node, rate, costs)
