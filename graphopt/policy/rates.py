"""Nanoseconds per element of single operations, in loops over large arrays on one core.

Orders of magnitude, measured by ``python -m benchmarks.rates`` on x86 with AVX-512 under jaxlib 0.10.2, less
what an addition takes. What is in no table costs `Op.cost` vector operations. The functions that XLA:CPU
vectorises are cheap; the others are one call per element.
"""

from __future__ import annotations

from typing import Final

from graphopt.hlo import Graph
from graphopt.hlo.library import reducer
from graphopt.hlo.schema import DType, HloInstructionProto

OPERATIONS_PER_NS: Final = 12.0
"""Vectorised additions; one unit of `Op.cost`."""

FUNCTION_NS: Final[dict[str, tuple[float, float]]] = {
    "atan2": (13.0, 38.0),
    "acos": (13.0, 38.0),
    "asin": (13.0, 38.0),
    "cbrt": (12.0, 17.0),
    "cosine": (2.5, 6.5),
    "erf": (0.15, 6.4),
    "exponential": (0.3, 1.4),
    "exponential-minus-one": (0.8, 2.5),
    "log": (0.6, 12.5),
    "log-plus-one": (0.7, 15.0),
    "logistic": (0.3, 1.6),
    "power": (7.0, 14.0),
    "remainder": (3.5, 4.0),
    "rsqrt": (0.2, 0.5),
    "sine": (3.6, 7.0),
    "tan": (4.7, 7.5),
    "tanh": (0.2, 0.7),
}
"""Operation -> nanoseconds in single precision (and narrower), and in double."""

INTEGER_NS: Final[dict[str, float]] = {"divide": 2.0, "remainder": 2.0}
"""The same for integers."""

GATHER_NS: Final = 0.6
TURN_NS: Final = 0.9
"""An element read at an index, and one of a transpose that changes the order of memory."""

SUM_ROWS_NS: Final = 1.0 / OPERATIONS_PER_NS
REDUCE_NS: Final = 0.7
COMPLEX_REDUCE_NS: Final = 8.0
"""A reduction, per element that it reads: only sums along the dimension that lies together in memory
vectorise; combiners of several operations (the position of a maximum) take one element after the other."""

_WIDE: Final = frozenset({DType.F64, DType.S64, DType.U64, DType.C64, DType.C128})
_FLOATS: Final = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64, DType.C64, DType.C128})


def element_ns(graph: Graph, node: int, operations: float = OPERATIONS_PER_NS) -> float:
    """Nanoseconds of one element of a node's result, what it reads not counted.

    Args:
        graph: of the program.
        node: the operation.
        operations: vectorised additions per nanosecond.
    """
    op, dtype = graph.ops[node], int(graph.dtype[node])
    wide = dtype in _WIDE
    if dtype not in _FLOATS and op.name in INTEGER_NS:
        return INTEGER_NS[op.name]
    if op.name in FUNCTION_NS:
        return FUNCTION_NS[op.name][wide]
    return op.cost * (1 + wide) / operations


def reduced_ns(graph: Graph, node: int) -> float:
    """Nanoseconds of a reduction in a loop kernel or native code, per element that it reads."""
    combiner = reducer(graph, node)
    if combiner is None:
        return COMPLEX_REDUCE_NS
    return SUM_ROWS_NS if combiner == "add" and reads_rows(graph, node) else REDUCE_NS


def reads_rows(graph: Graph, node: int) -> bool:
    """True for a reduction of the dimension that lies together in memory, maybe with others."""
    minor = graph.source.shapes[graph.operand_lists[node][0]].layout.minor_to_major
    proto = HloInstructionProto.FromString(graph.source.attributes[node])
    return bool(minor) and minor[0] in proto.dimensions
