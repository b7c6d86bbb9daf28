"""A rough time of every node, in array operations: input of the features, never of a decision.

The rates are orders of magnitude on x86; only ratios and logarithms reach the network. They are part of
the feature definition: changing one changes `features.VERSION`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.product_loops import dot_flops
from graphopt.hlo import Graph
from graphopt.hlo.module.index import Role
from graphopt.hlo.module.opcodes import OPS, OpKind

FloatArray = NDArray[np.float64]

_THUNK_NS: Final = 55.0
_LOOP_NS: Final = 150.0
_CALL_NS: Final = 400.0
_VECTOR_RATE: Final = 12.0
_SCALAR_RATE: Final = 1.5
_BYTES_PER_NS: Final = 20.0
_LIBRARY_FLOPS_PER_NS: Final = 40.0
_PLAIN_FLOPS_PER_NS: Final = 1.5
_FEW_ELEMENTS: Final = 16

OP_COST: Final = np.array([op.cost for op in OPS])
OP_KIND: Final = np.array([int(op.kind) for op in OPS])
_CODE: Final = {op.name: op.code for op in OPS}
_FREE: Final = np.array(
    [op.kind in (OpKind.STRUCTURE, OpKind.CONTROL) or op.name == "bitcast" for op in OPS]
)


@dataclass(frozen=True, eq=False)
class Estimates:
    """Times in nanoseconds, once through unless said otherwise.

    Attributes:
        work: float64 [N]; computing the node on one core, its traffic if XLA writes it to memory.
        default: float64 [N]; as XLA runs it, dispatch included; for loops and branches all that they run.
        native: float64 [N]; the same inside one native function.
        total: float64 [N]; `default` times the executions of the node, loops' own overhead only.
    """

    work: FloatArray
    default: FloatArray
    native: FloatArray
    total: FloatArray


def largest_operand(graph: Graph) -> NDArray[np.int64]:
    """int64 [N]; elements of each node's largest operand, 0 without operands."""
    out = np.zeros(len(graph), np.int64)
    counts = np.diff(graph.operand_start)
    has = np.flatnonzero(counts)
    if len(has):
        sizes = graph.elements[graph.operands]
        out[has] = np.maximum.reduceat(sizes, graph.operand_start[:-1][has])
    return out


def estimate(graph: Graph) -> Estimates:
    """Times of every node of a graph."""
    opcode = graph.opcode
    count = graph.elements.astype(np.float64)
    reducing = OP_KIND[opcode] == int(OpKind.REDUCING)
    count = np.where(reducing, np.maximum(count, largest_operand(graph)), count)
    rate = np.where(count >= _FEW_ELEMENTS, _VECTOR_RATE, _SCALAR_RATE)
    work = count * OP_COST[opcode] / rate
    work += np.where(graph.default.fuse, 0.0, graph.nbytes / _BYTES_PER_NS)
    free = _FREE[opcode]
    work[free] = 0.0
    default = np.where(graph.default.fuse | free, work, work + _THUNK_NS)
    native = work.copy()
    for node in np.flatnonzero(opcode == _CODE["dot"]).tolist():
        flops = dot_flops(graph, node)
        default[node] += _CALL_NS + flops / _LIBRARY_FLOPS_PER_NS
        native[node] += flops / _PLAIN_FLOPS_PER_NS
    own = default.copy()
    _add_callees(graph, default, native, own)
    return Estimates(work, default, native, own * graph.executions)


def _add_callees(graph: Graph, default: FloatArray, native: FloatArray, own: FloatArray) -> None:
    """Adds to every loop and branch what it runs; to `own` only the dispatch of iterations."""
    from graphopt.hlo.graph.graph import UNKNOWN_TRIPS

    branches: dict[int, int] = {}
    for computation in graph.computations:
        if computation.role is Role.BRANCH and computation.caller is not None:
            branches[computation.caller] = branches.get(computation.caller, 0) + 1
    for computation in graph.computations:  # callees first
        caller = computation.caller
        if caller is None:
            continue
        trips = UNKNOWN_TRIPS if computation.trip_count is None else computation.trip_count
        times = 1.0 / branches[caller] if computation.role is Role.BRANCH else float(trips)
        inside = slice(computation.first, computation.end)
        overhead = _LOOP_NS * times if computation.role is Role.LOOP_BODY else 0.0
        default[caller] += default[inside].sum() * times + overhead
        native[caller] += native[inside].sum() * times
        own[caller] += overhead
