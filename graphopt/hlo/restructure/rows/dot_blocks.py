"""Matrix products that plain loops compute fast.

In native code a product is three nested loops, the sum innermost. LLVM writes a short sum out and vectorises
over the columns of the right operand; a long one stays a scalar loop, ten times slower. So the contracted
dimension is cut into blocks, all blocks are multiplied as one batch, and the partial sums are added. An
operand that is read along the contracted dimension where columns are needed is transposed first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from graphopt.hlo.restructure.rows.dot_reduce import TYPES
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value, array_shape

MAX_PRODUCT: Final = 1 << 21
"""Most multiplications, batch included: beyond, two cores and the matrix library win by far."""

SHORT: Final = 32
"""Longest block, and longest contracted dimension that is one: LLVM writes the sum out."""

BEST_BLOCK: Final = 16
LEAST_BLOCK: Final = 4

RULES: Final = {
    "dot-long": "the product is empty or too large for plain loops",
    "dot-plain": "plain loops compute the product well as it is",
    "dot-block": "the contracted dimension has no divisor for blocks",
    "dot-dimensions": "an operand has several free or contracted dimensions",
}


@dataclass(frozen=True)
class Product:
    """A product of canonical form: leading batch dimensions, at most one free and one contracted dimension.

    Attributes:
        batch: product of the batch dimensions.
        rows: free dimension of the left operand, 1 if it has none.
        columns: that of the right operand.
        inner: the contracted dimension.
        left_turned: the left operand is stored [batch, inner, rows], not [batch, rows, inner].
        right_turned: the right operand is stored [batch, columns, inner], not [batch, inner, columns].
    """

    batch: int
    rows: int
    columns: int
    inner: int
    left_turned: bool
    right_turned: bool

    @property
    def block(self) -> int | None:
        """Length of a block; None if no divisor will do."""
        if self.inner <= SHORT:
            return self.inner
        sizes = [n for n in range(LEAST_BLOCK, SHORT + 1) if self.inner % n == 0]
        return min(sizes, key=lambda n: (n < BEST_BLOCK / 2, abs(n - BEST_BLOCK)), default=None)

    @property
    def is_fast(self) -> bool:
        """True if plain loops are fast as it is: a matrix by a vector, or a short sum over rows."""
        vector = self.rows == 1 or self.columns == 1
        return vector or (self.inner <= SHORT and not self.right_turned)

    def moved_elements(self, kept: Collection[int] = ()) -> int:
        """Elements that `expand` brings into another order; operands `kept`, by number, do not count."""
        cut = self.block != self.inner and not self.left_turned and 0 not in kept
        left = self.rows * self.inner if cut else 0
        right = self.columns * self.inner if self.right_turned and 1 not in kept else 0
        return self.batch * (left + right)


def product_of(instruction: Any, left: Sequence[int], right: Sequence[int]) -> Product | None:
    """The product that a dot computes; None if it is not of canonical form.

    Args:
        instruction: ``HloInstructionProto`` of the dot.
        left: dimensions of the left operand.
        right: of the right operand.
    """
    numbers = instruction.dot_dimension_numbers
    batch = list(range(len(numbers.lhs_batch_dimensions)))
    if list(numbers.lhs_batch_dimensions) != batch or list(numbers.rhs_batch_dimensions) != batch:
        return None
    n = len(batch)
    if len(numbers.lhs_contracting_dimensions) != 1 or max(len(left), len(right)) > n + 2:
        return None
    over_left, over_right = (
        numbers.lhs_contracting_dimensions[0],
        numbers.rhs_contracting_dimensions[0],
    )
    inner = left[over_left]
    return Product(
        batch=prod(left[:n]),
        rows=prod(left[n:]) // inner if inner else 0,
        columns=prod(right[n:]) // inner if inner else 0,
        inner=inner,
        left_turned=over_left == n and len(left) == n + 2,
        right_turned=over_right == n + 1,
    )


def forbids(candidate: Candidate) -> str | None:
    """Why a dot is not cut into blocks."""
    if not candidate.has_default_layouts():
        return "layout"
    if candidate.shape.element_type not in TYPES:
        return "dot-type"
    left, right = (list(candidate.operand_shape(i).dimensions) for i in range(2))
    product = product_of(candidate.instruction, left, right)
    if product is None:
        return "dot-dimensions"
    size = product.batch * product.rows * product.inner * product.columns
    if not 1 <= size <= MAX_PRODUCT:
        return "dot-long"
    if product.is_fast:
        return "dot-plain"
    return "dot-block" if product.block is None else None


def expand(site: Site) -> Value:
    """A batch of products of blocks, and the sum over the blocks."""
    a, b = site.operands
    return write(site.block, site.instruction, a, b)


def write(block: Block, dot: Any, a: Value, b: Value) -> Value:
    """The same of any operands for which that is legal; the shape is that of `dot`."""
    product = product_of(dot, a.dims, b.dims)
    assert product is not None and product.block is not None
    shape = dot.shape
    a, b = block.convert(a, shape.element_type), block.convert(b, shape.element_type)
    turned = product.left_turned
    left = _arranged(block, a, product, turned=turned, to_turned=turned)
    right = _arranged(block, b, product, turned=not product.right_turned, to_turned=True)
    result = _summed(block, product, _multiplied(block, left, right, turned=turned))
    return block.bitcast(result, list(shape.dimensions))


def _arranged(block: Block, x: Value, product: Product, *, turned: bool, to_turned: bool) -> Value:
    """An operand as [batch and blocks, block, free] (turned, as any turned operand stays), or
    [batch and blocks, free, block]."""
    inner, length = product.inner, product.block or product.inner
    batch, count = product.batch, inner // length
    free = prod(x.dims) // (batch * inner)
    if turned:
        return block.bitcast(x, [batch * count, length, free])
    if to_turned:
        whole = x if x.dims == (free, inner) else block.bitcast(x, [batch, free, inner])
        order = range(len(whole.dims))
        parts = block.arranged(whole, (*order[:-2], order[-1], order[-2]))
    else:
        parts = block.bitcast(x, [batch, free, count, length])
        if count > 1:
            parts = block.arranged(parts, (0, 2, 1, 3))
    return block.bitcast(parts, [batch * count, *((length, free) if to_turned else (free, length))])


def _multiplied(block: Block, left: Value, right: Value, *, turned: bool) -> Value:
    """The batched product, [batch and blocks, rows, columns]; `right` is turned."""
    numbers = {
        "lhs_batch_dimensions": [0],
        "rhs_batch_dimensions": [0],
        "lhs_contracting_dimensions": [1 if turned else 2],
        "rhs_contracting_dimensions": [1],
    }
    shape = array_shape(left.dtype, [left.dims[0], left.dims[2 if turned else 1], right.dims[2]])
    return block.add("dot", shape, (left, right), dot_dimension_numbers=numbers)


def _summed(block: Block, product: Product, partial: Value) -> Value:
    """Partial products added up over the blocks, [batch, rows, columns]."""
    _, rows, columns = partial.dims
    count = partial.dims[0] // product.batch
    if count == 1:
        return partial
    parts = block.bitcast(partial, [product.batch, count, rows, columns])
    add = block.function("add", partial.dtype)
    return block.reduce(parts, block.constant(partial.dtype, 0), [1], add, partial.dtype)
