"""Cumulative operations as a loop over the axis that combines whole rows.

XLA:CPU computes them as windows as long as the axis, in scalar code. With the axis in front, each step of
a loop combines one row with the one before, in vector code. Long axes are cut into blocks that run side
by side; a second loop carries their totals on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, prod
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.form import Form, Operation, Times
from graphopt.machine import CpuCosts

LONGEST: Final = 1024
"""Steps of the longest loop: a sum in single precision loses digits with every step."""

LANES: Final = 64
"""Rows with fewer elements leave vector code idle: their axis is cut into blocks too."""

XLA_BLOCK: Final = 16
"""Elements of the windows into which XLA cuts one that is as long as the axis."""

RULES: Final = {
    "cumulative-type": "elements are neither real floating-point numbers of 32 or 64 bits nor integers",
    "cumulative-empty": "there is nothing to accumulate",
}


def forbids(operation: Operation) -> str | None:
    """Why an operation cannot be a loop over its axis."""
    x = operation.operands[0]
    if x.size == 0:
        return "cumulative-empty"
    float_type = x.dtype in (np.float32, np.float64)
    return None if float_type or x.dtype.kind in "iu" else "cumulative-type"


def times(operation: Operation, costs: CpuCosts) -> Times:
    """XLA's windows, and the steps of the loops beside passes over memory."""
    x, axis = operation.operands[0], operation.params["axis"]
    length, inner = x.dims[axis], prod(x.dims[axis + 1 :])
    lanes = x.size // length
    per_window, per_step = costs.window_loop_ns, 0.0
    if operation.primitive == "cumlogsumexp":
        per_window, per_step = costs.cumulative_log_ns, costs.cumulative_log_ns
    default = x.size * min(length, XLA_BLOCK) * per_window
    if length > XLA_BLOCK:
        default += x.size * costs.cumulative_row_ns
    moved, steps = 0.0, length
    if (block := _block(length, lanes)) < length:
        moved, steps = 2 * costs.turn_ns, block + _steps(-(-length // block), lanes)
    if (inner < LANES and lanes > inner) or block < length:
        moved = 2 * costs.turn_ns
    if moved and inner < LANES and not per_step and x.bytes > costs.cached_bytes // 4:
        # Transposes cost as much as XLA's windows where arrays leave the caches.
        return Times(default, default)
    wide = max(1.0, x.dtype.itemsize / 4)
    per_element = (costs.cumulative_row_ns + moved) * wide + per_step
    return Times(default, x.size * per_element + steps * costs.scan_step_ns)


def _steps(length: int, lanes: int) -> int:
    """Steps of all loops over an axis and over the totals of its blocks."""
    block = _block(length, lanes)
    return length if block >= length else block + _steps(-(-length // block), lanes)


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """Accumulates along the axis, between the dimensions before it and those behind."""
    axis, reverse = operation.params["axis"], operation.params["reverse"]
    x = operands[0]
    dims = x.shape
    combine = _COMBINE[operation.primitive]
    start = jnp.asarray(_start(operation.primitive, operation.operands[0].dtype), x.dtype)
    flat = x.reshape(prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :]))
    return [_accumulate(flat, combine, start, reverse).reshape(dims)]


def _accumulate(x: Any, combine: Callable[..., Any], start: Any, reverse: bool) -> Any:
    """Along the second of three dimensions."""
    outer, length, inner = x.shape
    block = _block(length, outer * inner)
    blocks = -(-length // block)
    rest = blocks * block - length
    if rest:
        x = lax.pad(x, start, [(0, 0, 0), (rest, 0, 0) if reverse else (0, rest, 0), (0, 0, 0)])
    parts = jnp.moveaxis(x.reshape(outer, blocks, block, inner), 2, 0)
    parts = _loop(parts, combine, start, reverse)
    if blocks > 1:
        totals = _accumulate(parts[0 if reverse else -1], combine, start, reverse)
        edge = jnp.full((outer, 1, inner), start, x.dtype)
        before = [totals[:, 1:], edge] if reverse else [edge, totals[:, :-1]]
        parts = combine(jnp.concatenate(before, axis=1)[None], parts)
    done = jnp.moveaxis(parts, 0, 2).reshape(outer, blocks * block, inner)
    return done[:, rest:] if reverse else done[:, :length]


def _loop(x: Any, combine: Callable[..., Any], start: Any, reverse: bool) -> Any:
    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = combine(carry, row)
        return carry, carry

    return lax.scan(step, jnp.full(x.shape[1:], start, x.dtype), x, reverse=reverse)[1]


def _block(length: int, lanes: int) -> int:
    """Elements per block of an axis; the whole axis where blocks do not help."""
    if length <= LONGEST and (lanes >= LANES or length <= LANES):
        return length
    return min(LONGEST, 1 << (isqrt(length).bit_length()))


def _start(primitive: str, dtype: np.dtype[Any]) -> Any:
    """What an operation starts from: combining it with a value gives the value."""
    if primitive in ("cumsum", "cumprod"):
        return 0 if primitive == "cumsum" else 1
    low = primitive != "cummin"
    if dtype.kind == "f":
        return -np.inf if low else np.inf
    return np.iinfo(dtype).min if low else np.iinfo(dtype).max


_COMBINE: Final[dict[str, Callable[..., Any]]] = {
    "cumsum": lax.add,
    "cumprod": lax.mul,
    "cummax": lax.max,
    "cummin": lax.min,
    "cumlogsumexp": jnp.logaddexp,
}

FORM: Final = Form(
    "cumulative-scan",
    tuple(_COMBINE),
    "a loop over the axis that combines whole rows, long axes in blocks side by side",
    forbids,
    times,
    compute,
    exact=False,
    accuracy=(
        "integers, maxima and minima are equal; sums and products are equal to rounding: at most"
        f" {LONGEST} are taken one after the other, then totals of so many"
    ),
)
