"""Reductions along one dimension, in slices that are combined element by element.

Native code adds up a row one element after the other, each addition waiting for the last. Here a row is cut
into slices of a few elements, which vector code combines, and then the elements of the slice that is left. A
``reduce-window`` that XLA puts in front of long reductions is left out. Elements are combined in another
order, so that sums agree to rounding; as in XLA, the initial value may enter more than once.
"""

from __future__ import annotations

from typing import Any, Final

from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.rows.reduce_windows import (
    combined,
    is_associative,
    part_of,
    reduced_value,
    source_node,
)
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value, is_row_major

LENGTHS: Final = (16, 8, 12, 10, 14, 9, 11, 13, 15)
"""Elements of a slice; of those that leave the fewest elements over, the first."""

LEAST: Final = 24
"""Shorter dimensions stay as they are."""

MOST_SLICES: Final = 32
"""Slices that are combined at once; longer dimensions are cut twice."""

RULES: Final = {
    "slices-dimension": "the reduction is not along one dimension of several, or that is short",
    "slices-combiner": "the combiner is not one of the associative operations",
}


def forbids(candidate: Candidate) -> str | None:
    """Why a reduction is not made in slices."""
    shape = candidate.shape
    if shape.element_type == DType.TUPLE or not shape.dimensions:
        return "slices-dimension"
    if not is_associative(candidate.applied):
        return "slices-combiner"
    source = Candidate(candidate.graph, source_node(candidate)).shape
    if not candidate.has_default_layouts() or not is_row_major(source):
        return "layout"
    reduced = list(candidate.instruction.dimensions)
    long = len(reduced) == 1 and source.dimensions[reduced[0]] >= LEAST
    own = candidate.operand_shape(0).dimensions
    others = [d for d in range(len(own)) if d not in reduced]
    same = all(own[d] == source.dimensions[d] for d in others)
    return None if long and same else "slices-dimension"


def expand(site: Site) -> Value:
    """Slices along the dimension, combined until one is left, and what did not fill one."""
    block, combiner = site.block, site.applied
    x = reduced_value(site)
    (dimension,) = site.instruction.dimensions
    last = []
    while x.dims[dimension] >= LEAST:
        x, rest = _slices(block, x, combiner, dimension)
        last += rest
    last += _elements(block, x, dimension, 0)
    dims = [n for d, n in enumerate(x.dims) if d != dimension]
    parts = [block.bitcast(part, dims) for part in last]
    return combined(block, combiner, [*parts, block.broadcast(site.operands[1], dims)])


def cut(extent: int) -> tuple[int, int]:
    """Number and length of the slices that a dimension is cut into."""
    if extent > MOST_SLICES * LENGTHS[0]:
        return MOST_SLICES, extent // MOST_SLICES
    lengths = [n for n in LENGTHS if extent // n <= MOST_SLICES]
    length = min(lengths, key=lambda n: extent % n)
    return extent // length, length


def _slices(block: Block, x: Value, combiner: Any, dimension: int) -> tuple[Value, list[Value]]:
    """All slices combined, in memory, and the elements that are left over."""
    count, length = cut(x.dims[dimension])
    slices = [part_of(block, x, dimension, k * length, (k + 1) * length) for k in range(count)]
    out = combined(block, combiner, slices)
    block.alone(out)
    return out, _elements(block, x, dimension, count * length)


def _elements(block: Block, x: Value, dimension: int, start: int) -> list[Value]:
    """Single elements along a dimension, from one on."""
    return [part_of(block, x, dimension, k, k + 1) for k in range(start, x.dims[dimension])]
