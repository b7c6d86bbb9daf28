"""Products of a matrix and a few vectors, with a row for each vector.

Vector code runs along the last dimension of a result. Under ``vmap`` a matrix times a vector becomes a matrix
times a few, with rows of as many elements: chains of a sampler, environments, members of an ensemble. Here
the operands change places, and so do the last two dimensions of all that is computed of the result element
by element (`graphopt.hlo.restructure.rows.turned.regions`). A matrix that is stored in the other order is
turned first, in a loop that keeps it once for all iterations
(`graphopt.hlo.restructure.rows.loops.invariants`).
"""

from __future__ import annotations

from typing import Final

from graphopt.hlo.restructure.rows import dot_blocks
from graphopt.hlo.restructure.rows.dot_swap import swapped
from graphopt.hlo.restructure.rows.turned.regions import RULES as RULES
from graphopt.hlo.restructure.rows.turned.regions import Region, region_of
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.values import Value, array_shape

WRITTEN_OUT: Final = 48
"""Longest sum that LLVM writes out in plain loops."""


def forbids(candidate: Candidate) -> str | None:
    """Why a product is not turned."""
    found = region_of(candidate.graph, candidate.node)
    return found if isinstance(found, str) else None


def along(candidate: Candidate) -> list[int]:
    """The other products of the region."""
    found = region_of(candidate.graph, candidate.node)
    return list(found.dots) if isinstance(found, Region) else []


def edits(candidate: Candidate) -> list[int]:
    """All nodes whose instructions are written in another way."""
    found = region_of(candidate.graph, candidate.node)
    return list(found.nodes) if isinstance(found, Region) else []


def expand(site: Site) -> Value:
    """The product with its operands in the other order, as plain loops compute it best.

    The shape of the instruction is that of the turned result already.
    """
    block, (matrix, vectors) = site.block, site.operands
    dot = swapped(site.instruction)
    product = dot_blocks.product_of(dot, vectors.dims, matrix.dims)
    assert product is not None
    if product.right_turned:
        rank = len(matrix.dims)
        order = [*range(rank - 2), rank - 1, rank - 2]
        matrix = block.arranged(matrix, order)
        dot.dot_dimension_numbers.rhs_contracting_dimensions[:] = [rank - 2]
        product = dot_blocks.product_of(dot, vectors.dims, matrix.dims)
        assert product is not None
    if stays_plain(product):
        shape = array_shape(dot.shape.element_type, dot.shape.dimensions)
        return block.clone(dot, (vectors, matrix), shape)
    return dot_blocks.write(block, dot, vectors, matrix)


def stays_plain(product: dot_blocks.Product) -> bool:
    """True for a product that is not cut into blocks when it is turned."""
    return product.inner <= WRITTEN_OUT or product.block is None
