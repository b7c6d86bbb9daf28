"""Windows that overlap: cumulative sums, moving averages, pooling, morphology.

XLA:CPU combines all elements of every window anew, in scalar code. ``window-doubling`` takes one dimension
after the other and combines whole shifted arrays, which vectorises: windows of 2, 4, 8, ... elements, each
from two of the size before, and those that add up to the window's size.

XLA writes the cumulative sum of n elements as windows of 16 over rows, and the same again over the sums of
the rows.

The order in which elements are combined changes, as it does between XLA's own versions: sums of
floating-point numbers agree to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.rows.reduce_windows import is_associative, padded
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.inlining import inline
from graphopt.hlo.restructure.writing.values import Value

DIRECT: Final = 4
"""Windows of so few elements are combined from shifts of the array itself."""

RULES: Final = {
    "sliding-result": "the windows have several results",
    "sliding-holes": "the array is dilated, a window is reversed, or padding is negative",
    "sliding-apart": "no two windows overlap",
    "sliding-combiner": "the combiner is not one of the associative operations",
}


def forbids(candidate: Candidate) -> str | None:
    """Why overlapping windows cannot be written as shifted arrays."""
    if candidate.shape.element_type == DType.TUPLE:
        return "sliding-result"
    if not candidate.has_default_layouts():
        return "layout"
    windows = candidate.instruction.window.dimensions
    if any(
        w.base_dilation > 1 or w.window_reversal or w.padding_low < 0 or w.padding_high < 0
        for w in windows
    ):
        return "sliding-holes"
    if not any(w.size > max(w.stride, 1) for w in windows):
        return "sliding-apart"
    return None if is_associative(candidate.applied) else "sliding-combiner"


def expand(site: Site) -> Value:
    """Pads, combines along one dimension after the other, and combines with the initial value."""
    block = site.block
    x, init = site.operands
    windows = site.instruction.window.dimensions
    whole = [n + w.padding_low + w.padding_high for n, w in zip(x.dims, windows, strict=True)]
    x = padded(block, x, init, whole, [w.padding_low for w in windows])
    # Large strides first: what follows has fewer elements to combine.
    for d in sorted(range(len(windows)), key=lambda d: -windows[d].stride):
        x = _along(site, x, d, windows[d])
    return inline(block, site.applied, [block.broadcast(init, x.dims), x])[0]


def _along(site: Site, x: Value, d: int, window: Any) -> Value:
    """All windows along dimension `d`."""
    size, step, stride = int(window.size), max(window.window_dilation, 1), max(window.stride, 1)
    count = (x.dims[d] - (size - 1) * step - 1) // stride + 1
    if size <= DIRECT:
        parts = [_part(site.block, x, d, k * step, count, stride) for k in range(size)]
        return _all(site, parts)
    parts, first, span = [], 0, 1
    while True:
        if size & span:
            parts.append(_part(site.block, x, d, first * step, count, stride))
            first += span
        if 2 * span > size:
            return _all(site, parts)
        kept = x.dims[d] - span * step
        x = _all(site, [_part(site.block, x, d, start, kept, 1) for start in (0, span * step)])
        span *= 2


def _all(site: Site, parts: Sequence[Value]) -> Value:
    """Arrays of one shape, combined one after the other."""
    return reduce(lambda a, b: inline(site.block, site.applied, [a, b])[0], parts)


def _part(block: Block, x: Value, d: int, first: int, count: int, stride: int) -> Value:
    """`count` elements along dimension `d`, from `first` on."""
    starts, limits, strides = [0] * len(x.dims), list(x.dims), [1] * len(x.dims)
    starts[d], limits[d], strides[d] = first, first + (count - 1) * stride + 1, stride
    return block.slice(x, starts, limits, strides)
