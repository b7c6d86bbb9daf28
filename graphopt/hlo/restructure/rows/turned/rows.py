"""Products as sums along rows: a multiplication and a reduction of what lies together in memory.

A sum of many products per element of a small result, such as the gradient of a few vectors over all rows of
a matrix, is vector code where both operands are stored along the sum. An operand that is not is brought into
that order first, in a loop that keeps it once for all iterations
(`graphopt.hlo.restructure.rows.loops.invariants`).
"""

from __future__ import annotations

from typing import Any, Final

from graphopt.hlo.restructure.rows import dot_reduce
from graphopt.hlo.restructure.rows.dot_blocks import product_of
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value

RULES: Final = {"dot-along": "both operands are stored along the sum, or the product is no matrix"}


def forbids(candidate: Candidate) -> str | None:
    """Why operands of a dot are not brought into another order."""
    rule = dot_reduce.forbids(candidate)
    if rule is not None:
        return rule
    left, right = (list(candidate.operand_shape(i).dimensions) for i in range(2))
    product = product_of(candidate.instruction, left, right)
    if product is None:
        return "dot-dimensions"
    if min(product.rows, product.columns) <= 1:
        return "dot-along"
    return None if product.left_turned or not product.right_turned else "dot-along"


def expand(site: Site) -> Value:
    """Both operands with the sum last, multiplied and reduced."""
    a, b = site.operands
    numbers = site.instruction.dot_dimension_numbers
    a = _along(site.block, a, numbers.lhs_contracting_dimensions)
    b = _along(site.block, b, numbers.rhs_contracting_dimensions)
    return dot_reduce.write(site.block, site.instruction, a, b)


def _along(block: Block, x: Value, summed: Any) -> Value:
    """An operand with the contracted dimension last; `summed` holds that dimension, and is changed."""
    last = len(x.dims) - 1
    if summed[0] == last:
        return x
    summed[0] = last
    return block.arranged(x, (*range(last - 1), last, last - 1))
