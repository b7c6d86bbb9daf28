"""Reductions along one dimension, in slices that are combined element by element.

Native code adds up a row one element after the other, each addition waiting for the last. Here a row is cut
into slices of a few elements, which vector code combines, and then the elements of the slice that is left. A
``reduce-window`` that XLA puts in front of long reductions is left out. Elements are combined in another
order, so that sums agree to rounding; as in XLA, the initial value may enter more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.rows.reduce_windows import is_associative, merged, source_node
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.inlining import inline
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


def behind(candidate: Candidate) -> list[int]:
    """Nodes beyond the operands that are read: what a reduce-window in front reads."""
    source = source_node(candidate)
    return [] if source == candidate.operands[0] else [source]


def expand(site: Site) -> Value:
    """Slices along the dimension, combined until one is left, and what did not fill one."""
    block = site.block
    x, init = site.operands
    window = site.producer(x)
    if window is not None and window.instruction.opcode == "reduce-window":
        whole = merged(site, window)
        x = x if whole is None else whole
    (dimension,) = site.instruction.dimensions
    last = []
    while x.dims[dimension] >= LEAST:
        x, rest = _combined(block, x, site.applied, dimension)
        last += rest
    last += _elements(block, x, dimension, 0)
    dims = [n for d, n in enumerate(x.dims) if d != dimension]
    parts = [block.bitcast(part, dims) for part in last]
    parts.append(block.broadcast(init, dims))
    return tree(block, site.applied, parts)


def cut(extent: int) -> tuple[int, int]:
    """Number and length of the slices that a dimension is cut into."""
    if extent > MOST_SLICES * LENGTHS[0]:
        return MOST_SLICES, extent // MOST_SLICES
    lengths = [n for n in LENGTHS if extent // n <= MOST_SLICES]
    length = min(lengths, key=lambda n: extent % n)
    return extent // length, length


def _combined(block: Block, x: Value, combiner: Any, dimension: int) -> tuple[Value, list[Value]]:
    """All slices combined, in memory, and the elements that are left over."""
    count, length = cut(x.dims[dimension])
    slices = [_part(block, x, dimension, k * length, length) for k in range(count)]
    out = tree(block, combiner, slices)
    block.editor.alone.add((block.computation, out.id))
    return out, _elements(block, x, dimension, count * length)


def tree(block: Block, combiner: Any, values: Sequence[Value]) -> Value:
    """Values of one shape, combined pairwise."""
    left = list(values)
    while len(left) > 1:
        pairs = [left[i : i + 2] for i in range(0, len(left), 2)]
        left = [inline(block, combiner, p)[0] if len(p) > 1 else p[0] for p in pairs]
    return left[0]


def _elements(block: Block, x: Value, dimension: int, start: int) -> list[Value]:
    """Single elements along a dimension, from one on."""
    return [_part(block, x, dimension, k, 1) for k in range(start, x.dims[dimension])]


def _part(block: Block, x: Value, dimension: int, start: int, length: int) -> Value:
    starts, limits = [0] * len(x.dims), list(x.dims)
    starts[dimension], limits[dimension] = start, start + length
    return block.slice(x, starts, limits)
