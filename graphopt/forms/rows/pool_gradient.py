"""Gradients of max pools: each window's place by comparisons, then spread back by comparing places.

XLA:CPU computes places with windows over pairs and adds the gradients with a scatter, one element after
the other. Here the place of each window's winner is found by comparing shifted slices, in XLA's order
and with its ties; every element then adds up the gradients of the windows that it won.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.form import Form, Operation, Times
from graphopt.forms.spreading import Windows, spread
from graphopt.machine import CpuCosts

MAX_WINDOW: Final = 32
"""Elements of the largest window: each is a slice and a comparison in the loop's code."""
MAX_COVER: Final = 16
"""Windows that may hold one element."""
LANES: Final = 8
"""A dimension of so many elements may be brought to the end, for vector code."""

RULES: Final = {
    "pool-gradient-type": "elements are no numbers of single or double precision",
    "pool-gradient-empty": "the operation has no elements, or its window has one",
    "pool-gradient-window": "the window has too many elements, or too many windows hold an element",
    "pool-gradient-padding": "padding is negative",
    "pool-gradient-minor": "windows lie along the innermost of two dimensions, or no other is long",
}


def forbids(operation: Operation) -> str | None:
    """Why a gradient of a pool is left to XLA."""
    params, (source, x) = operation.params, operation.operands
    sizes = params["window_dimensions"]
    if source.dtype != x.dtype or x.dtype not in (np.float32, np.float64):
        return "pool-gradient-type"
    if source.size == 0 or x.size == 0 or prod(sizes) == 1:
        return "pool-gradient-empty"
    if prod(sizes) > MAX_WINDOW or prod(_windows(operation).covers) > MAX_COVER:
        return "pool-gradient-window"
    if any(n < 0 for side in params["padding"] for n in side):
        return "pool-gradient-padding"
    return "pool-gradient-minor" if _order(operation) is None else None


def times(operation: Operation, costs: CpuCosts) -> Times:
    """XLA's windows over pairs and its scatter; comparisons for each window and for each element."""
    source, x = operation.operands
    window, wide = prod(operation.params["window_dimensions"]), x.dtype.itemsize / 4
    default = source.size * (costs.pool_scatter_ns + window * costs.pool_place_ns)
    form = source.size * window * wide * costs.shift_place_ns
    form += x.size * prod(_windows(operation).covers) * wide * costs.shift_spread_ns
    if any(p != (0, 0) for p in map(tuple, operation.params["padding"])):
        form += x.size * wide * costs.pad_ns
    if _order(operation) != tuple(range(len(x.dims))):
        form += (2 * x.size + source.size) * wide * costs.convolution_turn_ns
    return Times(default, form + costs.pool_call_ns)


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """The place of each window's winner, and for each element the gradients of windows it won."""
    order = _order(operation)
    assert order is not None  # the rule
    turned = _turned(operation, order)
    source, x = (lax.transpose(operand, order) for operand in operands)
    # One kernel finds the places, the other reads each of them once per window that holds an element.
    places = lax.optimization_barrier(_places(turned, x))
    return [lax.transpose(spread(_windows(turned), source, places), np.argsort(order))]


def _order(operation: Operation) -> tuple[int, ...] | None:
    """Dimensions in an order that ends with one without windows; None where all such are short."""
    params, dims = operation.params, operation.operands[1].dims
    steps = zip(params["window_dimensions"], params["window_strides"], strict=True)
    free = [axis for axis, step in enumerate(steps) if step == (1, 1)]
    if free and free[-1] == len(dims) - 1:
        return tuple(range(len(dims)))
    last = max(free, key=lambda axis: dims[axis], default=None)
    # Of matrices XLA's scatter is as fast as what their transposes take.
    if last is None or dims[last] < LANES or len(dims) < 3:
        return None
    return (*(axis for axis in range(len(dims)) if axis != last), last)


def _turned(operation: Operation, order: Sequence[int]) -> Operation:
    """The operation on arrays whose dimensions are in another order."""
    named = ("window_dimensions", "window_strides", "padding")
    turned = {name: tuple(operation.params[name][axis] for axis in order) for name in named}
    operands = tuple(
        replace(x, dims=tuple(x.dims[axis] for axis in order)) for x in operation.operands
    )
    return replace(operation, operands=operands, params={**operation.params, **turned})


def _places(operation: Operation, x: Any) -> Any:
    """Number of the winner in each window, in the order of memory; int32[shape of the source]."""
    params, counts = operation.params, operation.operands[0].dims
    sizes, strides = params["window_dimensions"], params["window_strides"]
    ahead = operation.params["select_prim"].name == "ge"
    padding = params["padding"]
    if any(p != (0, 0) for p in map(tuple, padding)):
        # As jax does for the CPU: what lies outside takes part as the identity, and may win.
        outside = np.asarray(-np.inf if ahead else np.inf, x.dtype)
        x = lax.pad(x, outside, [(*p, 0) for p in padding])
    best: Any = None
    places: Any = None
    for number, place in enumerate(product(*(range(n) for n in sizes))):
        limits = [p + (n - 1) * s + 1 for p, n, s in zip(place, counts, strides, strict=True)]
        candidate = lax.slice(x, place, limits, strides)
        if best is None:
            best, places = candidate, jnp.full(counts, number, jnp.int32)
            continue
        keep = best >= candidate if ahead else best <= candidate
        best = lax.select(keep, best, candidate)
        places = lax.select(keep, places, jnp.full(counts, number, jnp.int32))
    return places


def _windows(operation: Operation) -> Windows:
    params = operation.params
    return Windows(
        operation.operands[1].dims,
        params["window_dimensions"],
        params["window_strides"],
        tuple(low for low, _ in params["padding"]),
    )


FORM: Final = Form(
    "pool-gradient",
    ("select_and_scatter_add",),
    "places of the winners by comparisons of shifted slices, gradients spread by comparing places",
    forbids,
    times,
    compute,
    exact=True,
    apart=True,
)
