"""What matrix products cost: by the library, as plain loops in native code, and there in blocks.

Measured by ``python -m benchmarks.rates --products``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.hlo import Graph
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


@dataclass(frozen=True)
class ProductCosts:
    """Nanoseconds of one matrix product.

    Attributes:
        library_ns: by the matrix library.
        plain_ns: as plain loops in native code.
        blocks_ns: in blocks in native code; None if that is not legal.
    """

    library_ns: float
    plain_ns: float
    blocks_ns: float | None

    @property
    def in_blocks(self) -> bool:
        """True if blocks are legal and faster than plain loops."""
        return self.blocks_ns is not None and self.blocks_ns < self.plain_ns

    @property
    def native_ns(self) -> float:
        """In native code, in the faster of the two forms."""
        return self.plain_ns if self.blocks_ns is None else min(self.blocks_ns, self.plain_ns)


def product_costs(graph: Graph, node: int) -> ProductCosts:
    """Costs of a dot."""
    instruction = HloInstructionProto.FromString(graph.source.attributes[node])
    left, right = (graph.dim_lists[operand] for operand in graph.operand_lists[node])
    product = product_of(instruction, left, right)
    slower = _SLOWER.get(int(graph.dtype[node]), 1.0)
    work = dot_flops(graph, node) * slower
    turned = product is not None and (product.left_turned or product.right_turned)
    library = RUNTIME_CALL_NS + TURNED_CALL_NS * turned + work / DOT_FLOPS_PER_NS
    if product is None:
        return ProductCosts(library, work / SLOW_FLOPS_PER_NS, None)
    legal = graph.masks.restructure[node, CODE["dot-blocks"]]
    blocks = _blocks_ns(product, work, slower) if legal else None
    return ProductCosts(library, work / _plain_rate(product), blocks)


def _plain_rate(product: Product) -> float:
    if product.is_fast:
        return _fast_rate(product, NARROW_FLOPS_PER_NS)
    return LONG_FLOPS_PER_NS if product.inner > LONG_SUM else SLOW_FLOPS_PER_NS


def _blocks_ns(product: Product, work: float, slower: float) -> float:
    parts = 0 if product.inner <= SHORT else product.inner // (product.block or 1)
    added = product.batch * product.rows * product.columns * parts
    moved = product.moved_elements * MOVED_NS + added / OPERATIONS_PER_NS
    return 3 * PART_NS + work / _fast_rate(product, NARROW_BLOCKS_FLOPS_PER_NS) + moved * slower


def _fast_rate(product: Product, narrow: float) -> float:
    if product.rows == 1 or product.columns == 1:
        return VECTOR_FLOPS_PER_NS
    return FAST_FLOPS_PER_NS if product.columns >= NARROW else narrow
