"""Nanoseconds per element of single operations, in loops over large arrays on one core.

Orders of magnitude, measured by ``python -m benchmarks.rates`` on x86 with AVX-512 under jaxlib 0.10.2, less
what an addition takes. What is in no table costs `Op.cost` vector operations. The functions that XLA:CPU
vectorises are cheap; the others are one call per element.
"""

from __future__ import annotations

from math import prod
from typing import Final

from graphopt.hlo import Graph
from graphopt.hlo.legal.library_support import reducer
from graphopt.hlo.module.proto import DType, HloInstructionProto

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
SHORT_ROW: Final = 8
UNROLLED_ROW: Final = 64
UNROLLED_ROWS_NS: Final = (0.14, 0.0065)
"""A reduction along the dimension that lies together in memory, per element that it reads: rows of up to
`SHORT_ROW` elements and those longer than `UNROLLED_ROW` vectorise; LLVM unrolls those between, which take so
much, and so much more for every element of a row."""

NESTED_ROWS_NS: Final = 0.2
"""Reductions of long rows and of other dimensions at once, per element."""

UNROLLED_COLUMNS: Final = 32
REDUCE_NS: Final = 0.7
"""Reductions over other dimensions, per element: up to `UNROLLED_COLUMNS` of them vectorise."""

COMPLEX_REDUCE_NS: Final = 8.0
"""Combiners of several operations (the position of a maximum) take one element after the other."""

LIBRARY_REDUCTION_NS: Final = 800.0
LIBRARY_ELEMENT_NS: Final = 0.11
LIBRARY_RUN_NS: Final = 2.4
"""A reduction by the kernel library: the call, an element, and every run of elements that lie together."""

LIBRARY_SPLIT: Final = 1 << 16
LIBRARY_SPLIT_NS: Final = 8_000.0
"""Elements from which the library uses two cores, and what handing over half of the work takes."""

_WIDE: Final = frozenset({DType.F64, DType.S64, DType.U64, DType.C64, DType.C128})
FLOATS: Final = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64, DType.C64, DType.C128})


def element_ns(graph: Graph, node: int, operations: float = OPERATIONS_PER_NS) -> float:
    """Nanoseconds of one element of a node's result, what it reads not counted.

    Args:
        graph: of the program.
        node: the operation.
        operations: vectorised additions per nanosecond.
    """
    op, dtype = graph.ops[node], int(graph.dtype[node])
    wide = dtype in _WIDE
    if dtype not in FLOATS and op.name in INTEGER_NS:
        return INTEGER_NS[op.name]
    if op.name in FUNCTION_NS:
        return FUNCTION_NS[op.name][wide]
    return op.cost * (1 + wide) / operations


def reduced_ns(graph: Graph, node: int) -> float:
    """Nanoseconds of a reduction in a loop kernel or native code, per element that it reads."""
    if reducer(graph, node) is None:
        return COMPLEX_REDUCE_NS
    minor, reduced = _minor_and_reduced(graph, node)
    sizes = graph.dim_lists[graph.operand_lists[node][0]]
    if minor is None or minor not in reduced:
        count = prod(sizes[dimension] for dimension in reduced)
        return SUM_ROWS_NS if count <= UNROLLED_COLUMNS else REDUCE_NS
    row = sizes[minor]
    if len([d for d in reduced if sizes[d] > 1]) > 1:
        return REDUCE_NS if row <= UNROLLED_ROW else NESTED_ROWS_NS
    if SHORT_ROW < row <= UNROLLED_ROW:
        base, more = UNROLLED_ROWS_NS
        return base + more * row
    return SUM_ROWS_NS


def library_reduced_ns(graph: Graph, node: int) -> float:
    """Nanoseconds of a whole reduction by the kernel library."""
    operand = graph.operand_lists[node][0]
    sizes, elements = graph.dim_lists[operand], float(graph.elements[operand])
    run = 1
    minor, reduced = _minor_and_reduced(graph, node)
    for dimension in graph.source.shapes[operand].layout.minor_to_major:
        if (dimension in reduced) != (minor in reduced):
            break
        run *= sizes[dimension]
    work = LIBRARY_ELEMENT_NS * elements + LIBRARY_RUN_NS * elements / run
    if elements >= LIBRARY_SPLIT:
        work = LIBRARY_SPLIT_NS + work / 2
    return LIBRARY_REDUCTION_NS + work


def _minor_and_reduced(graph: Graph, node: int) -> tuple[int | None, list[int]]:
    """The dimension of a reduction's operand that lies together in memory, and those that are reduced."""
    minor = graph.source.shapes[graph.operand_lists[node][0]].layout.minor_to_major
    proto = HloInstructionProto.FromString(graph.source.attributes[node])
    return (minor[0] if minor else None), list(proto.dimensions)
