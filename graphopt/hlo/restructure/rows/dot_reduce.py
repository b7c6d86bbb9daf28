"""Small matrix products as a multiplication and a reduction.

Written so, a product can be fused with what makes its operands, and one whose operands are narrower
than its result, which the native emitter cannot compute, may sit in a native region. Operands are
converted to the result's type first; sums are taken in another order, so that results agree to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value

MAX_MULTIPLICATIONS: Final = 1 << 15
"""Largest single product: beyond, the matrix library wins by far."""

MAX_BATCHED: Final = 1 << 21
"""Most multiplications, batch included: beyond, two cores win."""

MAX_THIN: Final = 1 << 9
"""Most multiplications per row of a larger product: the library takes long for short rows."""

RULES: Final = {
    "dot-type": "sums in this type would be too rough",
    "dot-size": "the product is empty or too large",
}

TYPES: Final = frozenset(
    {DType.F32, DType.F64, DType.S32, DType.S64, DType.U32, DType.U64, DType.C64, DType.C128}
)
"""Result types."""


def forbids(candidate: Candidate) -> str | None:
    """Why a dot cannot be written out."""
    if not candidate.has_default_layouts():
        return "layout"
    if candidate.shape.element_type not in TYPES:
        return "dot-type"
    numbers = candidate.instruction.dot_dimension_numbers
    left = candidate.operand_shape(0).dimensions
    free = {*range(len(left))} - {*numbers.lhs_contracting_dimensions}
    rows = prod(left[d] for d in free)
    size = prod(candidate.shape.dimensions) * prod(
        left[d] for d in numbers.lhs_contracting_dimensions
    )
    batch = prod(left[d] for d in numbers.lhs_batch_dimensions)
    most = max(batch * MAX_MULTIPLICATIONS, rows * MAX_THIN)
    small = 1 <= size <= min(most, MAX_BATCHED)
    return None if small else "dot-size"


def expand(site: Site) -> Value:
    """Broadcasts both operands to [batch, left, contracted, right], multiplies, and reduces."""
    a, b = site.operands
    return write(site.block, site.instruction, a, b)


def write(block: Block, dot: Any, a: Value, b: Value) -> Value:
    """The same of any operands for which that is legal; the type is that of `dot`."""
    numbers = dot.dot_dimension_numbers
    dtype = dot.shape.element_type
    left = _order(a, numbers.lhs_batch_dimensions, numbers.lhs_contracting_dimensions)
    right = _order(b, numbers.rhs_batch_dimensions, numbers.rhs_contracting_dimensions)
    batch = [a.dims[d] for d in left[0]]
    rows, inner, columns = (
        [a.dims[d] for d in left[1]], [a.dims[d] for d in left[2]], [b.dims[d] for d in right[1]],
    )  # fmt: skip
    whole = [*batch, *rows, *inner, *columns]
    n, m, k = len(batch), len(rows), len(inner)
    a = block.transpose(block.convert(a, dtype), [*left[0], *left[1], *left[2]])
    b = block.transpose(block.convert(b, dtype), [*right[0], *right[2], *right[1]])
    after = range(n + m, n + m + k + len(columns))
    product = block.op(
        "multiply",
        block.broadcast(a, whole, list(range(n + m + k))),
        block.broadcast(b, whole, [*range(n), *after]),
    )
    function = block.function("add", dtype)
    summed = list(range(n + m, n + m + k))
    return block.reduce(product, block.constant(dtype, 0), summed, function, dtype)


def _order(
    x: Value, batch: Sequence[int], contracted: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """(batch, free, contracted) dimensions of an operand."""
    free = [d for d in range(len(x.dims)) if d not in {*batch, *contracted}]
    return list(batch), free, list(contracted)
