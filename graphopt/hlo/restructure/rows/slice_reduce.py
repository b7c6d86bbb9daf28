"""Reductions along dimensions that lie together, in slices that are combined element by element.

Native code adds up a row one element after the other, each addition waiting for the last, and a loop kernel
goes down one column after the other. Here what is reduced is cut into slices of a few elements or rows, which
vector code combines, and then the elements of the slice that is left. A ``reduce-window`` that XLA puts in
front of long reductions is left out. Elements are combined in another order, so that sums agree to rounding;
as in XLA, the initial value may enter more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from graphopt.hlo.module.proto import DTYPE_BYTES, DType
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
"""Reductions of fewer elements stay as they are."""

MOST_SLICES: Final = 32
"""Slices that are combined at once."""

COUNTS: Final = range(MOST_SLICES, 3 * MOST_SLICES // 4, -1)
"""The same of longer reductions, of which slices are cut again."""

NEAR_BYTES: Final = 2048
"""Slices that begin a multiple of so many bytes apart share a few places of the first cache."""

RULES: Final = {
    "slices-dimension": "what is reduced does not lie together, or is short, or nothing is kept",
    "slices-combiner": "the combiner is not one of the associative operations",
}


def forbids(candidate: Candidate) -> str | None:
    """Why a reduction is not made in slices."""
    shape = candidate.shape
    if shape.element_type == DType.TUPLE or not shape.dimensions or not prod(shape.dimensions):
        return "slices-dimension"
    if not is_associative(candidate.applied):
        return "slices-combiner"
    source = Candidate(candidate.graph, source_node(candidate)).shape
    if not candidate.has_default_layouts() or not is_row_major(source):
        return "layout"
    reduced = list(candidate.instruction.dimensions)
    own = candidate.operand_shape(0).dimensions
    others = [d for d in range(len(own)) if d not in reduced]
    same = all(own[d] == source.dimensions[d] for d in others)
    together = _lie_together(reduced)
    long = prod(source.dimensions[d] for d in reduced) >= LEAST
    return None if together and long and same else "slices-dimension"


def _lie_together(dimensions: Sequence[int]) -> bool:
    """True for dimensions next to each other."""
    return bool(dimensions) and max(dimensions) - min(dimensions) + 1 == len(dimensions)


def expand(site: Site) -> Value:
    """Slices along what is reduced, combined until one is left, and what did not fill one."""
    block, combiner = site.block, site.applied
    x = reduced_value(site)
    reduced = sorted(site.instruction.dimensions)
    front, back = x.dims[: reduced[0]], x.dims[reduced[-1] + 1 :]
    stack = _Stack(block, (prod(front), prod(back)))
    x = block.bitcast(x, stack.dims(prod(x.dims[d] for d in reduced)))
    last = []
    while stack.rows(x) >= LEAST:
        x, rest = _slices(stack, x, combiner)
        last += rest
    last += stack.singles(x, 0)
    parts = [block.bitcast(part, (*front, *back)) for part in last]
    parts.append(block.broadcast(site.operands[1], (*front, *back)))
    # Fused into a larger reader, it would be computed for each of that one's elements.
    return block.alone(combined(block, combiner, parts))


@dataclass(frozen=True)
class _Stack:
    """Rows that are reduced, of every element in front of them. Rows are one dimension with what is in them.

    A dimension of their own would make loops short.

    Attributes:
        block: that writes.
        kept: elements in front of the rows, and in a row.
    """

    block: Block
    kept: tuple[int, int]

    def dims(self, rows: int) -> tuple[int, ...]:
        """Dimensions of so many rows."""
        front, length = self.kept
        return (rows * length,) if front == 1 else (front, rows * length)

    def rows(self, x: Value) -> int:
        """Rows of an array."""
        return prod(x.dims) // prod(self.kept)

    def part(self, x: Value, start: int, stop: int) -> Value:
        """Some of its rows."""
        front, length = self.kept
        return part_of(self.block, x, int(front > 1), start * length, stop * length)

    def singles(self, x: Value, start: int) -> list[Value]:
        """Single rows, from one on."""
        return [self.part(x, k, k + 1) for k in range(start, self.rows(x))]


def cut(extent: int, row_bytes: int = 1) -> tuple[int, int]:
    """Number and length of the slices that rows are cut into, few rows left over.

    Args:
        extent: rows.
        row_bytes: of one of them.
    """
    if extent >= MOST_SLICES * (LENGTHS[0] - 1):
        lengths = [extent // count for count in COUNTS]
    else:
        lengths = [n for n in LENGTHS if extent // n <= MOST_SLICES]
    length = min(lengths, key=lambda n: (n * row_bytes % NEAR_BYTES == 0, extent % n))
    return extent // length, length


def _slices(stack: _Stack, x: Value, combiner: Any) -> tuple[Value, list[Value]]:
    """All slices combined, in memory, and the rows that are left over."""
    rows = stack.rows(x)
    count, length = cut(rows, stack.kept[1] * DTYPE_BYTES[x.dtype])
    slices = [stack.part(x, k * length, (k + 1) * length) for k in range(count)]
    out = combined(stack.block, combiner, slices)
    stack.block.alone(out)
    return out, stack.singles(x, count * length)
