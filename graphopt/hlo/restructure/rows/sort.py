"""Small sorts by counting: the rank of an element is the number of elements that go before it.

Every pair of elements is compared once; an element goes before another if the comparator says so, or if
neither goes first and it stood first, which makes the sort stable. The sorted array is read off the
ranks. No arithmetic touches the values (their bits are selected), so results are equal bit for bit.
"""

from __future__ import annotations

from math import prod
from typing import Final

from graphopt.hlo.module.proto import DTYPE_BYTES, DType
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.inlining import inline, is_elementwise_function
from graphopt.hlo.restructure.writing.values import Value, array_shape, is_row_major

MAX_EXTENT: Final = 64
"""Most elements of one sorted row."""

MAX_PAIRS: Final = 1 << 16
"""Most pairs that are compared, over all rows."""

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
    dims = list(arrays[0].dims)
    axis = int(site.instruction.dimensions[0])
    # Pair dimensions: `axis` is the element that is ranked, `axis + 1` the one it is compared with.
    pairs = [*dims[: axis + 1], *dims[axis:]]
    ranked = [d for d in range(len(pairs)) if d != axis + 1]
    other = [d for d in range(len(pairs)) if d != axis]
    first, second = [], []
    for x in arrays:
        mine, theirs = block.broadcast(x, pairs, ranked), block.broadcast(x, pairs, other)
        first += [theirs, mine]
        second += [mine, theirs]
    before = inline(block, site.applied, first)[0]
    after = inline(block, site.applied, second)[0]
    earlier = block.compare("LT", block.iota(pairs, axis + 1), block.iota(pairs, axis))
    tie = block.op("and", block.op("not", after), earlier)
    counts = block.convert(block.op("or", before, tie), DType.S32)
    add = block.function("add", DType.S32)
    rank = block.reduce(counts, block.constant(DType.S32, 0), [axis + 1], add, DType.S32)
    # Now `axis` is the place in the result and `axis + 1` the element that may belong there.
    chosen = block.compare("EQ", block.broadcast(rank, pairs, other), block.iota(pairs, axis))
    results = [_selected(block, x, pairs, other, chosen, axis + 1) for x in arrays]
    return results[0] if len(results) == 1 else block.tuple(results)


def _selected(
    block: Block, x: Value, pairs: list[int], where: list[int], chosen: Value, dimension: int
) -> Value:
    """Per place, the bits of the one chosen element."""
    bits = _BITS[DTYPE_BYTES[x.dtype]]
    raw = _reinterpreted(block, x, bits)
    kept = block.op("select", chosen, block.broadcast(raw, pairs, where),
                    block.full(bits, 0, pairs))  # fmt: skip
    either = block.function("or", bits)
    out = block.reduce(kept, block.constant(bits, 0), [dimension], either, bits)
    return _reinterpreted(block, out, x.dtype)


def _reinterpreted(block: Block, x: Value, dtype: int) -> Value:
    if x.dtype == dtype:
        return x
    if DType.PRED in (x.dtype, dtype):
        return block.convert(x, dtype)
    return block.add("bitcast-convert", array_shape(dtype, x.dims), (x,))
