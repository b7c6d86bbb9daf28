"""Which nodes a native region may contain."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.derived import derives
from graphopt.hlo.graph.graph import Computation, Graph
from graphopt.hlo.module.index import ComputationIndex, Instruction
from graphopt.hlo.module.opcodes import OPS, is_native_product
from graphopt.hlo.module.proto import DType
from graphopt.machine import UnitKind

_REGIONAL: Final = np.array([op.regional for op in OPS], np.bool_)
"""bool [opcodes]; those that a native region may contain."""

_LOOKED_AT: Final = np.array([op.name in ("fusion", "dot", "convert") for op in OPS], np.bool_)
"""bool [opcodes]; those of which it may contain some."""

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

_ROUNDED_TWICE: Final = frozenset({DType.F8E5M2.value})
"""Types to which kernels round other numbers than `_ROUNDED_ONCE` by a type between, native code does not."""

_ROUNDED_ONCE: Final = frozenset({DType.F32.value, DType.F16.value, DType.BF16.value})


@derives("regional")
def regional_nodes(graph: Graph, opened: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
    """bool [N]; nodes that a native region may contain, called computations included.

    Args:
        graph: whose nodes to judge.
        opened: bool [N]; nodes to count as allowed whatever they are.

    A loop that XLA itself made native is allowed whatever it contains, such as a convolution.
    """
    native = np.array([unit.kind is UnitKind.NATIVE for unit in graph.units], np.bool_)
    allowed = native[graph.default.unit]
    if opened is not None:
        allowed |= opened
    ok = _REGIONAL[graph.opcode] | allowed
    called: dict[int, list[Computation]] = {}
    for computation in graph.computations:
        if computation.caller is not None:
            called.setdefault(computation.caller, []).append(computation)
    looked_at = _LOOKED_AT[graph.opcode]
    looked_at[list(called)] = True
    for node in np.flatnonzero(looked_at & ok & ~allowed).tolist():  # callees before callers
        ok[node] = _is_regional(graph, node) and all(
            ok[inner.first : inner.end].all() for inner in called.get(node, ())
        )
    return ok


def regional_once_opened(graph: Graph, opened: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool [N], only to be read; the same once restructures have replaced the nodes `opened`, bool [N]."""
    return regional_nodes(graph, opened) if opened.any() else graph.regional


def _is_regional(graph: Graph, node: int) -> bool:
    """False for a node that native code computes wrongly or not at all, by its types or its body."""
    name = graph.ops[node].name
    if name == "fusion":
        return _regional_fusion(graph, node)
    if name == "dot":
        return is_native_product({int(graph.dtype[o]) for o in (node, *graph.operand_lists[node])})
    return name != "convert" or not _misrounds(
        int(graph.dtype[graph.operand_lists[node][0]]), int(graph.dtype[node])
    )


def _misrounds(source: int, target: int) -> bool:
    """True for a conversion whose result in native code is not that of a kernel."""
    twice = target in _ROUNDED_TWICE and source not in _ROUNDED_ONCE
    return target in MISROUNDED or twice


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
        source = computation.by_id[instruction.operands[0]].shape.element_type
        return not _misrounds(source, instruction.shape.element_type)
    if instruction.opcode != "dot":
        return True
    operands = [computation.by_id[i] for i in instruction.operands]
    return is_native_product({i.shape.element_type for i in (instruction, *operands)})
