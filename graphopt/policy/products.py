"""What matrix products cost: by the library, as plain loops in native code, and there in blocks.

Measured by ``python -m benchmarks.rates --products``.
"""

from __future__ import annotations

from typing import Final

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.product_blocks import SHORT, Product, product_of
from graphopt.hlo.schema import DType, HloInstructionProto
from graphopt.policy.rates import OPERATIONS_PER_NS

RUNTIME_CALL_NS: Final = 400.0
"""A call of the matrix library, whatever its size."""

TURNED_CALL_NS: Final = 600.0
"""What it takes longer if it must transpose an operand."""

DOT_FLOPS_PER_NS: Final = 100.0
"""Matrix products by the library, single precision."""

FAST_FLOPS_PER_NS: Final = 40.0
"""Native loops that vectorise: short sums, blocks."""

VECTOR_FLOPS_PER_NS: Final = 28.0
"""A matrix by a vector."""

NARROW: Final = 16
NARROW_FLOPS_PER_NS: Final = 12.0
NARROW_BLOCKS_FLOPS_PER_NS: Final = 5.5
"""Short sums, and blocks, with fewer columns than that."""

SLOW_FLOPS_PER_NS: Final = 3.0
LONG_FLOPS_PER_NS: Final = 1.7
LONG_SUM: Final = 128
"""Plain loops whose sum is a scalar loop, and those that also leave the first-level cache."""

MOVED_NS: Final = 0.45
"""An element of an operand that is brought into another order."""

PART_NS: Final = 30.0
"""Each of the three or four loops that a product in blocks becomes."""

_SLOWER: Final[dict[int, float]] = {DType.F64: 2.0, DType.S64: 2.0, DType.C64: 4.0, DType.C128: 8.0}
"""Element type -> how many times longer than single precision."""


def dot_flops(graph: Graph, node: int) -> float:
    """Multiplications and additions of a dot."""
    numbers = HloInstructionProto.FromString(graph.source.attributes[node]).dot_dimension_numbers
    dims = graph.dim_lists[graph.operand_lists[node][0]]
    flops = 2.0 * float(graph.elements[node])
    for dimension in numbers.lhs_contracting_dimensions:
        flops *= dims[dimension]
    return flops


def library_ns(graph: Graph, node: int) -> float:
    """Nanoseconds of a dot by the matrix library."""
    product = _product(graph, node)
    turned = product is not None and (product.left_turned or product.right_turned)
    work = dot_flops(graph, node) * _slower(graph, node) / DOT_FLOPS_PER_NS
    return RUNTIME_CALL_NS + TURNED_CALL_NS * turned + work


def plain_ns(graph: Graph, node: int) -> float:
    """Nanoseconds of a dot as plain loops in native code."""
    product = _product(graph, node)
    rate = SLOW_FLOPS_PER_NS
    if product is not None and product.is_fast:
        rate = _fast_rate(product, NARROW_FLOPS_PER_NS)
    elif product is not None and product.inner > LONG_SUM:
        rate = LONG_FLOPS_PER_NS
    return dot_flops(graph, node) * _slower(graph, node) / rate


def blocks_ns(graph: Graph, node: int) -> float | None:
    """Nanoseconds of a dot in blocks in native code; None if that is not legal."""
    product = _product(graph, node)
    if product is None or not graph.masks.restructure[node, CODE["dot-blocks"]]:
        return None
    parts = 0 if product.inner <= SHORT else product.inner // (product.block or 1)
    added = product.batch * product.rows * product.columns * parts
    ns = dot_flops(graph, node) / _fast_rate(product, NARROW_BLOCKS_FLOPS_PER_NS)
    ns += product.moved_elements * MOVED_NS + added / OPERATIONS_PER_NS
    return 3 * PART_NS + ns * _slower(graph, node)


def native_ns(graph: Graph, node: int) -> float:
    """Nanoseconds of a dot in native code, in the faster of the two forms."""
    blocks, plain = blocks_ns(graph, node), plain_ns(graph, node)
    return plain if blocks is None else min(blocks, plain)


def write_in_blocks(graph: Graph, decisions: Decisions, node: int) -> None:
    """Decides that a dot in native code is written in blocks, if that is faster; leaves other nodes alone."""
    if graph.ops[node].name != "dot" or decisions.restructure[node]:
        return
    blocks = blocks_ns(graph, node)
    if blocks is not None and blocks < plain_ns(graph, node):
        decisions.restructure[node] = CODE["dot-blocks"]


def _product(graph: Graph, node: int) -> Product | None:
    instruction = HloInstructionProto.FromString(graph.source.attributes[node])
    left, right = (graph.dim_lists[operand] for operand in graph.operand_lists[node])
    return product_of(instruction, left, right)


def _fast_rate(product: Product, narrow: float) -> float:
    if product.rows == 1 or product.columns == 1:
        return VECTOR_FLOPS_PER_NS
    return FAST_FLOPS_PER_NS if product.columns >= NARROW else narrow


def _slower(graph: Graph, node: int) -> float:
    return _SLOWER.get(int(graph.dtype[node]), 1.0)
