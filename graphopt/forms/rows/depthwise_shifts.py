"""Depthwise convolutions as shifted arrays, each times a row of weights, added up.

XLA:CPU turns a convolution with one input channel per group into scalar code. Padded, sliced once per
element of the window and multiplied by its weights, it is one loop over the result that vectorises over
the channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod
from operator import add
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.form import Form, Operation, Times
from graphopt.machine import CpuCosts

MAX_WINDOW: Final = 128
"""Elements of the largest window: each is a slice in the loop's code."""

RULES: Final = {
    "depthwise-groups": "channels of a group are mixed, or batches are grouped",
    "depthwise-window": "the window has too many elements to be written out",
    "depthwise-type": "elements are no real floating-point numbers, or the result has another type",
    "depthwise-holes": "the input is dilated",
}


def forbids(operation: Operation) -> str | None:
    """Why a convolution cannot be computed by shifts."""
    params, (x, weights) = operation.params, operation.operands
    dims = params["dimension_numbers"]
    groups = params["feature_group_count"]
    if params["batch_group_count"] != 1 or groups == 1 or x.dims[dims.lhs_spec[1]] != groups:
        return "depthwise-groups"
    if any(d != 1 for d in params["lhs_dilation"]):
        return "depthwise-holes"
    if prod(weights.dims[d] for d in dims.rhs_spec[2:]) > MAX_WINDOW:
        return "depthwise-window"
    same = x.dtype == weights.dtype == operation.results[0].dtype
    return None if same and x.dtype in (np.float32, np.float64) else "depthwise-type"


def times(operation: Operation, costs: CpuCosts) -> Times:
    """XLA's scalar loop, and one vectorised pass."""
    weights, result = operation.operands[1], operation.results[0]
    spec = operation.params["dimension_numbers"].rhs_spec
    work = result.size * prod(weights.dims[d] for d in spec[2:])
    default = work / costs.scalar_operations_per_ns
    return Times(default, 2 * work / costs.operations_per_ns + result.bytes / costs.bytes_per_ns)


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """Pads once, and adds up one product per element of the window."""
    params = operation.params
    dims = params["dimension_numbers"]
    x = jnp.transpose(operands[0], (dims.lhs_spec[0], *dims.lhs_spec[2:], dims.lhs_spec[1]))
    # Channels of a group share one input channel: the result's channel o reads input o // multiplier.
    weights = jnp.transpose(operands[1], (*dims.rhs_spec[2:], dims.rhs_spec[1], dims.rhs_spec[0]))
    multiplier = weights.shape[-1] // x.shape[-1]
    if multiplier > 1:
        x = jnp.repeat(x, multiplier, axis=-1)
    x = lax.pad(
        x, jnp.zeros((), x.dtype), [(0, 0, 0), *((*p, 0) for p in params["padding"]), (0, 0, 0)]
    )
    counts = [operation.results[0].dims[d] for d in dims.out_spec[2:]]
    parts = []
    for place in product(*(range(n) for n in weights.shape[:-2])):
        starts = [i * d for i, d in zip(place, params["rhs_dilation"], strict=True)]
        strides = params["window_strides"]
        limits = [s + (n - 1) * k + 1 for s, n, k in zip(starts, counts, strides, strict=True)]
        shifted = lax.slice(
            x, (0, *starts, 0), (x.shape[0], *limits, x.shape[-1]), (1, *strides, 1)
        )
        parts.append(shifted * weights[(*place, 0)])
    order = np.argsort([dims.out_spec[0], *dims.out_spec[2:], dims.out_spec[1]]).tolist()
    return [jnp.transpose(reduce(add, parts), order)]


FORM: Final = Form(
    "depthwise-shifts",
    ("conv_general_dilated",),
    "shifted slices of the padded input, each times its weights, added up",
    forbids,
    times,
    compute,
    exact=False,
    accuracy="equal to rounding: sums of a window are taken in another order",
)
