"""Matrix products with their operands in the other order, and the result turned.

The runtime brings the left operand into an order of its own, row by row of the result, and takes long where
that operand is stored by columns. A product of many rows and few columns, as the gradient of a last layer is,
is several times faster as the product of the same matrices with few rows and many columns; the result, which
is turned then, is small.
"""

from __future__ import annotations

from typing import Any, Final

from graphopt.hlo.module.proto import HloInstructionProto
from graphopt.hlo.restructure.rows.dot_blocks import product_of
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.values import Value, array_shape

RULES: Final = {"dot-vector": "a matrix by a vector is as fast in either order"}


def forbids(candidate: Candidate) -> str | None:
    """Why the operands of a dot are not swapped."""
    if not candidate.has_default_layouts():
        return "layout"
    left, right = (list(candidate.operand_shape(i).dimensions) for i in range(2))
    product = product_of(candidate.instruction, left, right)
    if product is None:
        return "dot-dimensions"
    return "dot-vector" if min(product.rows, product.columns) <= 1 else None


def expand(site: Site) -> Value:
    """The product of the right operand by the left one, its last two dimensions exchanged."""
    a, b = site.operands
    shape = site.instruction.shape
    *batch, rows, columns = shape.dimensions
    turned = array_shape(shape.element_type, [*batch, columns, rows])
    product = site.block.clone(swapped(site.instruction), (b, a), turned)
    n = len(batch)
    return site.block.transpose(product, (*range(n), n + 1, n))


def swapped(dot: Any) -> Any:
    """A dot with its operands in the other order; operands and result are not set."""
    out = HloInstructionProto(opcode="dot")
    out.shape.CopyFrom(dot.shape)
    numbers, given = out.dot_dimension_numbers, dot.dot_dimension_numbers
    numbers.lhs_batch_dimensions.extend(given.rhs_batch_dimensions)
    numbers.rhs_batch_dimensions.extend(given.lhs_batch_dimensions)
    numbers.lhs_contracting_dimensions.extend(given.rhs_contracting_dimensions)
    numbers.rhs_contracting_dimensions.extend(given.lhs_contracting_dimensions)
    return out
