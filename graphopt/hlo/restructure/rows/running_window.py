"""Cumulative operations along one dimension, as a loop that carries what was combined so far.

XLA writes them as windows as long as the dimension, and combines all elements of every window anew.
``window-running`` writes a loop over the dimension: each step combines one element of every row with the
result before. Made for native code, where a step costs nanoseconds.

A window of XLA's begins with the initial value and takes its elements in their order, as the loop does: from
the front, results are bit-equal. From the back, sums of floating-point numbers agree to rounding.
"""

from __future__ import annotations

from typing import Any, Final

from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.rows.reduce_windows import is_associative
from graphopt.hlo.restructure.sites import Candidate, Site
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.inlining import inline, is_elementwise_function
from graphopt.hlo.restructure.writing.values import Value

RULES: Final = {
    "running-result": "the windows have several results",
    "running-window": "the windows are not as long as one dimension, and end or begin with each element",
    "running-combiner": "the combiner is more than scalar arithmetic, or from the back not associative",
}


def forbids(candidate: Candidate) -> str | None:
    """Why windows cannot be written as a loop over one dimension."""
    if candidate.shape.element_type == DType.TUPLE:
        return "running-result"
    if not candidate.has_default_layouts():
        return "layout"
    windows = candidate.instruction.window.dimensions
    d = running_dimension(windows, candidate.shape.dimensions)
    if d is None:
        return "running-window"
    known = is_associative if windows[d].padding_high else is_elementwise_function
    return None if known(candidate.applied) else "running-combiner"


def running_dimension(windows: Any, dims: Any) -> int | None:
    """The dimension along which windows accumulate everything before or behind an element.

    Args:
        windows: ``WindowDimension`` of each dimension.
        dims: extents of the array, which are those of the result.

    Returns:
        None for other windows.
    """
    moving = [d for d, w in enumerate(windows) if w.size > 1]
    if len(moving) != 1:
        return None
    (d,) = moving
    before = int(dims[d]) - 1
    w = windows[d]
    if w.size != before + 1 or sorted((w.padding_low, w.padding_high)) != [0, before]:
        return None
    plain = all(
        w.stride <= 1 and w.window_dilation <= 1 and w.base_dilation <= 1 and not w.window_reversal
        for w in windows
    )
    alone = all(not w.padding_low and not w.padding_high for w in windows if w.size <= 1)
    return d if plain and alone else None


def expand(site: Site) -> Value:
    """Overwrites a copy of the array, one element of every row after the other."""
    block = site.block
    x, init = site.operands
    windows = site.instruction.window.dimensions
    d = running_dimension(windows, x.dims)
    assert d is not None
    one = [1 if dimension == d else n for dimension, n in enumerate(x.dims)]
    last = x.dims[d] - 1 if windows[d].padding_high else None

    def step(inner: Block, k: Value, carried: list[Value]) -> list[Value]:
        so_far, results = carried
        zero = inner.constant(DType.S32, 0)
        place = k if last is None else inner.op("subtract", inner.constant(DType.S32, last), k)
        at = [place if dimension == d else zero for dimension in range(len(one))]
        (so_far,) = inline(inner, site.applied, [so_far, inner.dynamic_slice(results, at, one)])
        return [so_far, inner.dynamic_update_slice(results, so_far, at)]

    start = block.copy(block.broadcast(init, one))
    return block.loop(x.dims[d], [start, block.copy(x)], step)[1]
