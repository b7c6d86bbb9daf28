"""Pools as shifted arrays: maxima, minima and sums of windows, one dimension after the other.

XLA:CPU visits every element of every window, with a test of the borders. Padded once, a window is a few
shifted slices of the array, combined in vector code; windows of several dimensions are combined along
one dimension at a time, and long ones from windows of 4, 16, 64 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf, prod
from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.costs.windows import LONGEST_NATIVE_NS, native_window_ns
from graphopt.forms.form import Form, Operation, Times
from graphopt.machine import CpuCosts

DIRECT: Final = 8
"""Windows of so many elements along a dimension are written out."""
RADIX: Final = 4
"""Longer ones are made of windows each this many times as long as the ones before."""
RECOMPUTED: Final = 4
"""A dimension whose results are read so often by the next is written to memory before."""
LINE: Final = 16
"""Windows along one dimension of so many elements gain nothing."""
MAX_DIRECT: Final = 32
"""Longest window that is written out because windows hardly overlap."""

RULES: Final = {
    "window-type": "elements are neither single or double precision numbers nor integers",
    "window-empty": "the operation has no elements, or its window has one",
    "window-holes": "the array is dilated",
    "window-gradient": "a sum without padding and stride may be the gradient of an average pool",
    "window-length": "a window that hardly overlaps is too long to be written out",
    "window-minor": "a window along the innermost dimension is long: the optimizer's own rows are faster",
}

_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "reduce_window_max": lax.max,
    "reduce_window_min": lax.min,
    "reduce_window_sum": lax.add,
}


def forbids(operation: Operation) -> str | None:
    """Why windows cannot be computed by shifts."""
    x, result = operation.operands[0], operation.results[0]
    if x.size == 0 or result.size == 0 or prod(operation.params["window_dimensions"]) == 1:
        return "window-empty"
    if x.dtype not in (np.float32, np.float64) and not np.issubdtype(x.dtype, np.integer):
        return "window-type"
    if any(d != 1 for d in operation.params["base_dilation"]):
        return "window-holes"
    # jax pads between the elements before, and XLA skips such padding where it sees it.
    steps, padded = set(operation.params["window_strides"]), _is_padded(operation)
    if operation.primitive == "reduce_window_sum" and steps == {1} and not padded:
        return "window-gradient"
    pairs = list(zip(*_sizes_and_strides(operation), strict=True))
    if any(n > MAX_DIRECT and _is_direct(n, stride) for n, stride in pairs):
        return "window-length"
    return None if pairs[-1][0] <= DIRECT else "window-minor"


def times(operation: Operation, costs: CpuCosts) -> Times:
    """XLA's loop over all elements of all windows; a padded copy, and passes over shifted arrays."""
    x, result = operation.operands[0], operation.results[0]
    sizes, strides = _sizes_and_strides(operation)
    wide = x.dtype.itemsize / 4
    # What lies outside of the array costs XLA little.
    inside = prod(
        min(count * size, n * -(-size // stride))
        for count, size, n, stride in zip(result.dims, sizes, x.dims, strides, strict=True)
    )
    default = result.size * costs.pool_result_ns + inside * costs.pool_element_ns
    dims = _padded(operation)
    form = costs.pool_call_ns
    if _is_padded(operation):
        default += inside * costs.pool_border_ns
        rows = prod(dims[:-1]) if operation.params["padding"][-1] != (0, 0) else 0
        form += prod(dims) * wide * costs.pad_ns + rows * costs.pad_row_ns
    one = costs.shift_sum_ns if operation.primitive.endswith("sum") else costs.shift_max_ns
    together = 1
    for axis in reversed(range(len(dims))):
        if sizes[axis] == strides[axis] == 1:
            continue
        dims[axis] = result.dims[axis]
        together *= _combined(sizes[axis], strides[axis])
        if axis == 0 or sizes[axis] / strides[axis] >= RECOMPUTED:
            form += prod(dims) * wide * one * together
            together = 1
    form += result.size * wide * one * (together if together > 1 else 0)
    beyond = max(0, x.bytes - costs.pool_cached_bytes) / costs.bytes_per_ns
    along = [size for size in sizes if size > 1]
    if len(along) == 1 and along[0] <= LINE:  # XLA makes vector code of them, too
        default = form
    return Times(min(default + beyond, _own_ns(operation, costs)), form + beyond)


def _own_ns(operation: Operation, costs: CpuCosts) -> float:
    """Nanoseconds in native code, where the optimizer puts short windows that XLA left as they are."""
    sizes, strides = _sizes_and_strides(operation)
    if any(stride > 1 for stride in strides):
        return inf
    found = native_window_ns(operation.results[0].dims, sizes, costs)
    return found if found <= LONGEST_NATIVE_NS else inf


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """Pads, and combines shifted slices along each dimension, the innermost first.

    Of equal elements (zeros of either sign) the first in the order of memory stays, as in XLA's loop.
    """
    params, combine = operation.params, _COMBINE[operation.primitive]
    sizes, strides = params["window_dimensions"], params["window_strides"]
    x = operands[0]
    if _is_padded(operation):
        edges = [
            (*p, d - 1) for p, d in zip(params["padding"], params["base_dilation"], strict=True)
        ]
        x = lax.pad(x, np.asarray(_identity(operation.primitive, x.dtype), x.dtype), edges)
    read = 1.0
    for axis in reversed(range(x.ndim)):
        size, stride = sizes[axis], strides[axis]
        if size == stride == 1:
            continue
        if read > 1 and size / stride >= RECOMPUTED:
            x = lax.optimization_barrier(x)
        x = _along(x, axis, (size, stride, params["window_dilation"][axis]), combine)
        read *= size / stride
    return [x]


def _along(
    x: Any, axis: int, window: tuple[int, int, int], combine: Callable[[Any, Any], Any]
) -> Any:
    """Windows (elements, stride, dilation) along one dimension."""
    size, stride, dilation = window
    results = (x.shape[axis] - (size - 1) * dilation - 1) // stride + 1

    def at(level: Any, offset: int, count: int, step: int) -> Any:
        return lax.slice_in_dim(level, offset, offset + (count - 1) * step + 1, step, axis)

    if _is_direct(size, stride):
        parts = [at(x, i * dilation, results, stride) for i in range(size)]
        return reduce(combine, parts)
    levels, span = [x], 1
    while span * RADIX <= size:
        level = levels[-1]
        count = level.shape[axis] - (RADIX - 1) * span * dilation
        shifted = [at(level, i * span * dilation, count, 1) for i in range(RADIX)]
        levels.append(lax.optimization_barrier(reduce(combine, shifted)))
        span *= RADIX
    parts, offset = [], 0
    for level in reversed(levels):
        while offset + span <= size:
            parts.append(at(level, offset * dilation, results, stride))
            offset += span
        span //= RADIX
    return reduce(combine, parts)


def _is_direct(size: int, stride: int) -> bool:
    return size <= DIRECT or size < RECOMPUTED * stride


def _combined(size: int, stride: int) -> int:
    """Slices that are combined for one result along a dimension."""
    if _is_direct(size, stride):
        return size
    digits, count = size, 0
    while digits:
        digits, rest = divmod(digits, RADIX)
        count += rest + (RADIX * stride if digits else 0)
    return count


def _sizes_and_strides(operation: Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return operation.params["window_dimensions"], operation.params["window_strides"]


def _is_padded(operation: Operation) -> bool:
    return any(p != (0, 0) for p in map(tuple, operation.params["padding"]))


def _padded(operation: Operation) -> list[int]:
    """Shape of the padded operand."""
    sides = zip(operation.operands[0].dims, operation.params["padding"], strict=True)
    return [low + high + n for n, (low, high) in sides]


def _identity(primitive: str, dtype: np.dtype[Any]) -> Any:
    """What leaves the other operand of a combination as it is."""
    if primitive == "reduce_window_sum":
        return 0
    lowest = primitive == "reduce_window_max"
    if np.issubdtype(dtype, np.integer):
        return np.iinfo(dtype).min if lowest else np.iinfo(dtype).max
    return -np.inf if lowest else np.inf


FORM: Final = Form(
    "window-shifts",
    ("reduce_window_max", "reduce_window_min", "reduce_window_sum"),
    "shifted slices of the padded array, combined along one dimension after the other",
    forbids,
    times,
    compute,
    exact=False,
    accuracy="maxima, minima and integers are bit-equal; sums are taken in another order",
    apart=True,
)
