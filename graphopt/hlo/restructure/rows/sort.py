"""Small sorts by counting: the rank of an element is the number of elements that go before it.

Every pair of elements is compared once; an element goes before another if the comparator says so, or if
neither goes first and it stood first, which makes the sort stable. The sorted array is read off the
ranks. No arithmetic touches the values (their bits are selected), so results are equal bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Final

from graphopt.hlo.module.proto import DTYPE_BYTES, DType
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.comparing import Comparator
from graphopt.hlo.restructure.writing.inlining import is_elementwise_function
from graphopt.hlo.restructure.writing.values import Value, array_shape, is_row_major

MAX_EXTENT: Final = 64
"""Most elements of one sorted row."""

MAX_PAIRS: Final = 1 << 16
"""Most pairs that are compared, over all rows."""

SPAN: Final = 8
"""So many elements at most are compared with all others in one reduction: its loop is unrolled, and the
loop over the others becomes vector code."""

RULES: Final = {
    "sort-size": "too many elements to compare every pair",
    "sort-comparator": "the comparator is more than scalar arithmetic",
    "sort-unstable": "equal keys may come in an order of XLA's own",
    "sort-type": "elements of this type cannot be selected by their bits",
}

_BITS: Final = {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}


def forbids(candidate: Candidate) -> str | None:
    """Why a sort cannot be written out."""
    shapes = list(candidate.arrays())
    if not all(is_row_major(shape) for shape in shapes):
        return "layout"
    instruction = candidate.instruction
    if not instruction.is_stable:
        return "sort-unstable"
    if any(_BITS.get(DTYPE_BYTES.get(s.element_type, 0)) is None for s in shapes):
        return "sort-type"
    if any(s.element_type == DType.C64 for s in shapes):
        return "sort-type"
    extent = shapes[0].dimensions[instruction.dimensions[0]]
    if not 1 <= extent <= MAX_EXTENT or prod(shapes[0].dimensions) * extent > MAX_PAIRS:
        return "sort-size"
    return None if is_elementwise_function(candidate.applied) else "sort-comparator"


def expand(site: Site) -> Value:
    """Compares every pair, counts, and selects."""
    block, arrays = site.block, site.operands
    axis = int(site.instruction.dimensions[0])
    extent = arrays[0].dims[axis]
    spans = [(start, min(start + SPAN, extent)) for start in range(0, extent, SPAN)]
    comparator = Comparator(block, site.applied, arrays)
    counts = [_counts(block, comparator, arrays[0].dims, axis, span) for span in spans]
    rank = _together(block, "add", counts)
    results = []
    for x in arrays:
        bits = _BITS[DTYPE_BYTES[x.dtype]]
        raw = _reinterpreted(block, x, bits)
        parts = [_selected(block, raw, rank, axis, span) for span in spans]
        results.append(_reinterpreted(block, _together(block, "or", parts), x.dtype))
    return results[0] if len(results) == 1 else block.tuple(results)


def _together(block: Block, opcode: str, parts: Sequence[Value]) -> Value:
    return functools.reduce(lambda a, b: block.op(opcode, a, b), parts)


def _others(block: Block, x: Value, axis: int, span: tuple[int, int]) -> Value:
    """The elements of a span of the axis, along a dimension in front, each beside every element of `x`."""
    starts, limits = [0] * len(x.dims), list(x.dims)
    starts[axis], limits[axis] = span
    where = [d + 1 if d != axis else 0 for d in range(len(x.dims))]
    part = block.slice(x, starts, limits)
    return block.broadcast(part, (span[1] - span[0], *x.dims), where)


def _counts(
    block: Block, comparator: Comparator, dims: tuple[int, ...], axis: int, span: tuple[int, int]
) -> Value:
    """How many elements of a span of the axis go before each element, s32 of the arrays' shape."""
    pairs = [span[1] - span[0], *dims]

    def mine(x: Value) -> Value:
        return block.broadcast(x, pairs, range(1, len(pairs)))

    def theirs(x: Value) -> Value:
        return _others(block, x, axis, span)

    before = comparator.pairs(theirs, mine, pairs)
    after = comparator.pairs(mine, theirs, pairs)
    place = theirs(block.iota(dims, axis))
    earlier = block.compare("LT", place, block.iota(pairs, axis + 1))
    tie = block.op("and", block.op("not", after), earlier)
    counts = block.convert(block.op("or", before, tie), DType.S32)
    add = block.function("add", DType.S32)
    return block.reduce(counts, block.constant(DType.S32, 0), [0], add, DType.S32)


def _selected(block: Block, raw: Value, rank: Value, axis: int, span: tuple[int, int]) -> Value:
    """Per place of the result, the bits of the element of a span of the axis that belongs there, else 0."""
    pairs = [span[1] - span[0], *raw.dims]
    chosen = block.compare("EQ", _others(block, rank, axis, span), block.iota(pairs, axis + 1))
    kept = block.op(
        "select", chosen, _others(block, raw, axis, span), block.full(raw.dtype, 0, pairs)
    )
    either = block.function("or", raw.dtype)
    return block.reduce(kept, block.constant(raw.dtype, 0), [0], either, raw.dtype)


def _reinterpreted(block: Block, x: Value, dtype: int) -> Value:
    if x.dtype == dtype:
        return x
    if DType.PRED in (x.dtype, dtype):
        return block.convert(x, dtype)
    return block.add("bitcast-convert", array_shape(dtype, x.dims), (x,))
