"""What matrix products cost: by the library, as plain loops in native code, and there in blocks.

Measured by ``python -m benchmarks.rates --products``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from graphopt.costs.elements import OPERATIONS_PER_NS
from graphopt.hlo import Graph
from graphopt.hlo.module.proto import DType, HloInstructionProto
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.dot_blocks import SHORT, Product, product_of
from graphopt.machine import UnitKind

RUNTIME_CALL_NS: Final = 400.0
"""A call of the matrix library, whatever its size."""

NAIVE: Final = 3
CALLED: Final = 8
"""Longest dimension of matrices that XLA multiplies in loops of its own, and of those of a batch for each of
which it calls the matrix library; larger ones of a batch are one call."""

LIBRARY_MATRIX_NS: Final = 70.0
"""Each matrix of a batch that the kernel library multiplies."""

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

BATCHED_FLOPS_PER_NS: Final = 6.0
"""Plain loops over a batch of matrices of fewer columns than `NARROW`, or of columns that lie apart."""

REDUCED_RESULT_NS: Final = 0.3
REDUCED_FLOPS_PER_NS: Final = 8.0
REDUCED_ROWS_FLOPS_PER_NS: Final = 33.0
LEAST_COLUMNS: Final = 8
"""A batch as a multiplication and a reduction: a result, and the products of each; faster with so many
columns that lie together, and sums that LLVM writes out."""

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
        reduced_ns: as a multiplication and a reduction, in native code or a loop kernel; None if that is not
            legal, or no batch.
    """

    library_ns: float
    plain_ns: float
    blocks_ns: float | None
    reduced_ns: float | None = None

    @property
    def native_form(self) -> str:
        """The restructure that is fastest in native code; ``keep`` for plain loops."""
        return min(self._native, key=self._native.__getitem__)

    @property
    def native_ns(self) -> float:
        """In native code, in the fastest form."""
        return self._native[self.native_form]

    @cached_property
    def _native(self) -> dict[str, float]:
        forms = {"keep": self.plain_ns, "dot-blocks": self.blocks_ns, "dot-reduce": self.reduced_ns}
        return {name: ns for name, ns in forms.items() if ns is not None}


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
    legal = graph.masks.restructure[node]
    blocks = _blocks_ns(product, work, slower) if legal[CODE["dot-blocks"]] else None
    reduced = None
    if product.batch > 1:
        library += product.batch * _matrix_ns(graph, node, product)
        if product.columns > 1 and legal[CODE["dot-reduce"]]:
            reduced = _reduced_ns(product, work, slower)
    return ProductCosts(library, work / _plain_rate(product), blocks, reduced)


def _matrix_ns(graph: Graph, node: int, product: Product) -> float:
    """What XLA takes for each matrix of a batch beside its rate: a call, or a scalar loop for a vector."""
    if graph.units[graph.default.unit[node]].kind is UnitKind.LIBRARY:
        return LIBRARY_MATRIX_NS
    if product.rows == 1:
        apart = 1 < product.columns < LEAST_COLUMNS and not product.right_turned
        return 2.0 * product.inner * product.columns / SLOW_FLOPS_PER_NS if apart else 0.0
    longest = max(product.rows, product.inner, product.columns)
    return RUNTIME_CALL_NS if product.columns > 1 and NAIVE < longest <= CALLED else 0.0


def _reduced_ns(product: Product, work: float, slower: float) -> float:
    results = product.batch * product.rows * product.columns
    together = product.columns >= LEAST_COLUMNS and not product.right_turned
    fast = together and product.inner <= SHORT
    rate = REDUCED_ROWS_FLOPS_PER_NS if fast else REDUCED_FLOPS_PER_NS
    return REDUCED_RESULT_NS * results * slower + work / rate


def _plain_rate(product: Product) -> float:
    if product.batch > 1 and product.columns > 1:
        apart = product.right_turned and (product.rows > 1 or product.inner < NARROW)
        if apart or product.columns < NARROW:
            return BATCHED_FLOPS_PER_NS
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
