"""Nanoseconds per element of single operations, in loops over large arrays on one core.

The figures are those of `graphopt.machine.CpuCosts`. What is in no table costs `Op.cost` vector operations.
The functions that XLA:CPU vectorises are cheap; the others are one call per element.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Final

from graphopt.hlo import Graph
from graphopt.hlo.graph.layouts import VECTOR, innermost
from graphopt.hlo.graph.tiled import holds_complex
from graphopt.hlo.legal.library_support import reducer
from graphopt.hlo.module.proto import DType
from graphopt.machine import CpuCosts, own_costs

_WIDE: Final = frozenset({DType.F64, DType.S64, DType.U64, DType.C64, DType.C128})
FLOATS: Final = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64, DType.C64, DType.C128})
_NO_TIME: Final = (0.0, 0.0, 0.0)


def element_ns(
    graph: Graph, node: int, operations: float | None = None, costs: CpuCosts | None = None
) -> float:
    """Nanoseconds of one element of a node's result, what it reads not counted.

    Args:
        graph: of the program.
        node: the operation.
        operations: vectorised additions per nanosecond; those of `costs` if None.
        costs: of the machine; this one's if None.
    """
    costs = costs or own_costs()
    operations = operations or costs.operations_per_ns
    op, dtype = graph.ops[node], int(graph.dtype[node])
    wide = dtype in _WIDE
    if dtype not in FLOATS and op.name in costs.integer_ns:
        if divides_by_constant(graph, node):
            return costs.known_wide_divisor_ns if wide else costs.known_divisor_ns
        return costs.integer_ns[op.name]
    if op.name in costs.function_ns:
        return costs.function_ns[op.name][wide]
    return op.cost * (1 + wide) / operations


def library_element_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """The same of a function by the kernel library, which computes some of them sooner."""
    op, wide = graph.ops[node], int(graph.dtype[node]) in _WIDE
    own = costs.library_functions_ns.get(op.name)
    looped = element_ns(graph, node, costs=costs)
    return min(looped, costs.library_function_ns if own is None else own[wide])


def sooner_by_library_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """Nanoseconds that the kernel library saves on all elements of a function; 0 for other operations."""
    if graph.ops[node].name not in costs.function_ns:
        return 0.0
    saved = element_ns(graph, node, costs=costs) - library_element_ns(graph, node, costs)
    return saved * float(graph.elements[node])


def ends_ns(graph: Graph, members: Iterable[int], length: int, costs: CpuCosts) -> float:
    """Nanoseconds of the end of a row that does not fill a vector: functions of its elements are scalar code.

    Args:
        graph: of the program.
        members: what is computed of each element.
        length: of the row; rows shorter than a vector are written out.
        costs: of the machine.
    """
    left = length % VECTOR if length > VECTOR else 0
    functions = (node for node in members if graph.ops[node].name in costs.function_ns)
    scalar = sum(element_ns(graph, node, costs=costs) for node in functions) if left else 0.0
    return left * costs.row_end_function * scalar


def divides_by_constant(graph: Graph, node: int) -> bool:
    """True for a quotient of integers by a number that the compiler knows: it multiplies instead."""
    if graph.ops[node].name not in ("divide", "remainder") or int(graph.dtype[node]) in FLOATS:
        return False
    divisor = graph.operand_lists[node][1]
    while graph.ops[divisor].name in ("broadcast", "bitcast", "reshape"):
        divisor = graph.operand_lists[divisor][0]
    return graph.ops[divisor].name == "constant" and int(graph.elements[divisor]) == 1


def tiled_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """Nanoseconds that XLA's tiled code generator takes longer for an element than its loop generator.

    Below zero for what the loop generator, from which native code comes too, makes no vector code of.
    """
    name, dtype = graph.ops[node].name, int(graph.dtype[node])
    place = 1 if dtype == DType.F64 else 0 if dtype in FLOATS else 2
    tiled, looped = costs.tiled_functions_ns, costs.looped_functions_ns
    return tiled.get(name, _NO_TIME)[place] - looped.get(name, _NO_TIME)[place]


def tiled_complex_ns(graph: Graph, members: Iterable[int], costs: CpuCosts) -> float:
    """The same for an element of a kernel, where that is about complex numbers, beside `tiled_ns`."""
    if not holds_complex(graph, members):
        return 0.0
    return sum(costs.tiled_complex_ns.get(graph.ops[node].name, 0.0) for node in members)


def reduced_ns(graph: Graph, node: int, costs: CpuCosts | None = None) -> float:
    """Nanoseconds of a reduction in native code, per element that it reads; of most in loop kernels, too."""
    costs = costs or own_costs()
    if reducer(graph, node) is None:
        return costs.complex_reduce_ns
    minor, reduced = _minor_and_reduced(graph, node)
    sizes = graph.dim_lists[graph.operand_lists[node][0]]
    if minor is None or minor not in reduced:
        count = prod(sizes[dimension] for dimension in reduced)
        return costs.sum_rows_ns if count <= costs.unrolled_columns else costs.reduce_ns
    row = sizes[minor]
    if len([d for d in reduced if sizes[d] > 1]) > 1:
        return costs.reduce_ns if row <= costs.unrolled_row else costs.nested_rows_ns
    if costs.short_row < row <= costs.unrolled_row:
        base, more = costs.unrolled_rows_ns
        return base + more * row
    return costs.sum_rows_ns


def loop_reduced_ns(graph: Graph, node: int, costs: CpuCosts | None = None) -> float:
    """Nanoseconds of a reduction in a loop kernel, per element that it reads.

    Maxima and minima of floats, which keep NaN, take longer there than sums.
    """
    costs = costs or own_costs()
    minor, reduced = _minor_and_reduced(graph, node)
    operand = graph.operand_lists[node][0]
    extreme = reducer(graph, node) in {"maximum", "minimum"} and int(graph.dtype[node]) in FLOATS
    if extreme and minor in reduced and graph.dim_lists[operand][minor] > costs.unrolled_row:
        return max(costs.extreme_rows_ns, reduced_ns(graph, node, costs))
    return reduced_ns(graph, node, costs)


def library_reduced_ns(graph: Graph, node: int, costs: CpuCosts | None = None) -> float:
    """Nanoseconds of a whole reduction by the kernel library."""
    costs = costs or own_costs()
    operand = graph.operand_lists[node][0]
    sizes, elements = graph.dim_lists[operand], float(graph.elements[operand])
    run = 1
    minor, reduced = _minor_and_reduced(graph, node)
    for dimension in graph.source.shapes[operand].layout.minor_to_major:
        if sizes[dimension] > 1 and (dimension in reduced) != (minor in reduced):
            break
        run *= sizes[dimension]
    work = costs.library_element_ns * elements + costs.library_run_ns * elements / run
    if elements >= costs.library_split:
        work = costs.library_split_ns + work / 2
    return costs.library_reduction_ns + work


def _minor_and_reduced(graph: Graph, node: int) -> tuple[int | None, list[int]]:
    """The dimension of a reduction's operand that lies together in memory, and those that are reduced."""
    dimensions = list(graph.source.protos[node].dimensions)
    return innermost(graph, graph.operand_lists[node][0]), dimensions
