"""Which nodes a native region may contain."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.derived import derives
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.index import ComputationIndex, Instruction
from graphopt.hlo.module.opcodes import is_native_product
from graphopt.hlo.module.proto import DType
from graphopt.machine import UnitKind

MISROUNDED: Final = frozenset(
    {
        DType.F8E4M3FN.value,
        DType.F8E4M3B11FNUZ.value,
        DType.F8E5M2FNUZ.value,
        DType.F8E4M3FNUZ.value,
    }
)
"""Types to which XLA's native functions round wrongly where its kernels round right: 496 becomes -0, and
what is too small for a normal number NaN or twice as large."""


@derives("regional")
def regional_nodes(graph: Graph, opened: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """bool [N]; nodes that a native region may contain, called computations included.

    Args:
        graph: whose nodes to judge.
        opened: bool [N]; nodes to count as allowed whatever they are.

    A loop that XLA itself made native is allowed whatever it contains, such as a convolution.
    """
    ok = np.array([op.regional for op in graph.ops], np.bool_)
    native = np.array([unit.kind is UnitKind.NATIVE for unit in graph.units], np.bool_)
    by_default = native[graph.default.unit]
    by_caller: dict[int, list[int]] = {}
    for i, computation in enumerate(graph.computations):
        if computation.caller is not None:
            by_caller.setdefault(computation.caller, []).append(i)
        for node in range(computation.first, computation.end):
            if graph.ops[node].name == "fusion":
                ok[node] = _regional_fusion(graph, node)
            elif graph.ops[node].name == "dot":
                types = {int(graph.dtype[o]) for o in (node, *graph.operand_lists[node])}
                ok[node] = is_native_product(types)
            elif graph.ops[node].name == "convert":
                ok[node] &= int(graph.dtype[node]) not in MISROUNDED
            for callee in by_caller.get(node, ()):
                inner = graph.computations[callee]
                ok[node] &= bool(ok[inner.first : inner.end].all())
            if by_default[node] or (opened is not None and opened[node]):
                ok[node] = True
    return ok


def _regional_fusion(graph: Graph, node: int) -> bool:
    body = graph.source.module.computations[graph.source.called[node][0]]
    proto = graph.source.protos[node]
    return proto.fusion_kind != "kCustom" and all(
        i.opcode not in ("scatter", "fusion") and _has_native_code(body, i)
        for i in body.instructions
    )


def _has_native_code(computation: ComputationIndex, instruction: Instruction) -> bool:
    """False for a dot that native code cannot compute, and for what it rounds wrongly."""
    if instruction.opcode == "convert":
        return instruction.shape.element_type not in MISROUNDED
    if instruction.opcode != "dot":
        return True
    operands = [computation.by_id[i] for i in instruction.operands]
    return is_native_product({i.shape.element_type for i in (instruction, *operands)})
