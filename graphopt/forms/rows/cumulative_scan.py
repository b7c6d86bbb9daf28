"""Cumulative operations as a loop over the axis that combines whole rows.

XLA:CPU computes them as windows as long as the axis, in scalar code. With the axis in front, each step of
a loop combines one row with the one before, in vector code. Where rows are short, the axis is cut into
blocks that run side by side, and a second loop carries their totals on. Long sums over long rows, which lose
digits with every step, go from block to block.
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

Combine = Callable[..., Any]
"""Of two values; `start` combined with a value gives the value."""

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
    moved, steps, passes = 0.0, length, 1
    if _has_long_rows(operation):
        passes = 1 if length <= _longest(operation) else 2
    elif (block := _block(length)) < length:
        moved, steps = 2 * _turn_ns(operation, -(-length // block), costs), block
        steps += _steps(-(-length // block))
    if inner < LANES and lanes > inner:
        moved = moved or 2 * costs.turn_ns
    if moved and inner < LANES and not per_step and x.bytes > costs.cached_bytes // 4:
        # Transposes cost as much as XLA's windows where arrays leave the caches.
        return Times(default, default)
    wide = max(1.0, x.dtype.itemsize / 4)
    per_element = (passes * costs.cumulative_row_ns + moved) * wide + passes * per_step
    return Times(default, x.size * per_element + steps * costs.scan_step_ns)


def _turn_ns(operation: Operation, blocks: int, costs: CpuCosts) -> float:
    """Nanoseconds of bringing an element of a block to its lane, which code divides to find."""
    outer = prod(operation.operands[0].dims[: operation.params["axis"]])
    return costs.turn_ns if outer == 1 or blocks.bit_count() == 1 else costs.divided_turn_ns


def _has_long_rows(operation: Operation) -> bool:
    """True where rows fill vectors, and blocks of an axis are so few that their totals take one loop."""
    x, length = operation.operands[0], operation.operands[0].dims[operation.params["axis"]]
    return bool(x.size // length >= LANES and length <= LONGEST**2)


def _longest(operation: Operation) -> int:
    """Steps of the longest loop over long rows: any number where no step rounds."""
    exact = operation.primitive in ("cummax", "cummin") or operation.operands[0].dtype.kind in "iu"
    return int(operation.operands[0].size) if exact else LONGEST


def _steps(length: int) -> int:
    """Steps of all loops over an axis and over the totals of its blocks, which run side by side."""
    block = _block(length)
    return length if block >= length else block + _steps(-(-length // block))


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """Accumulates along the axis, between the dimensions before it and those behind."""
    axis, reverse = operation.params["axis"], operation.params["reverse"]
    x = operands[0]
    dims = x.shape
    combine = _COMBINE[operation.primitive]
    start = jnp.asarray(_start(operation.primitive, operation.operands[0].dtype), x.dtype)
    flat = x.reshape(prod(dims[:axis]), dims[axis], prod(dims[axis + 1 :]))
    if _has_long_rows(operation):
        rows = jnp.moveaxis(flat, 1, 0)
        done = jnp.moveaxis(_in_turn(rows, combine, start, reverse, _longest(operation)), 0, 1)
    else:
        done = _side_by_side(flat, combine, start, reverse)
    return [done.reshape(dims)]


def _in_turn(x: Any, combine: Combine, start: Any, reverse: bool, longest: int) -> Any:
    """Along the first dimension, from block to block where there are more than `longest` rows."""
    if len(x) <= longest:
        return _loop(x, combine, start, reverse)
    block = _block(len(x))
    x, rest = _whole_blocks(x, 0, block, start, reverse)

    def step(before: Any, rows: Any) -> tuple[Any, Any]:
        done = combine(before[None], _loop(rows, combine, start, reverse))
        return done[0 if reverse else -1], done

    first = jnp.full(x.shape[1:], start, x.dtype)
    parts = x.reshape(-1, block, *x.shape[1:])
    done = lax.scan(step, first, parts, reverse=reverse)[1].reshape(x.shape)
    return done[rest:] if reverse else done[: len(done) - rest]


def _side_by_side(x: Any, combine: Combine, start: Any, reverse: bool) -> Any:
    """Along the second of three dimensions, in blocks that run at the same time."""
    outer, length, inner = x.shape
    block = _block(length)
    x, rest = _whole_blocks(x, 1, block, start, reverse)
    blocks = x.shape[1] // block
    parts = jnp.moveaxis(x.reshape(outer, blocks, block, inner), 2, 0)
    parts = _loop(parts, combine, start, reverse)
    if blocks > 1:
        totals = _side_by_side(parts[0 if reverse else -1], combine, start, reverse)
        edge = jnp.full((outer, 1, inner), start, x.dtype)
        before = [totals[:, 1:], edge] if reverse else [edge, totals[:, :-1]]
        parts = combine(jnp.concatenate(before, axis=1)[None], parts)
    done = jnp.moveaxis(parts, 0, 2).reshape(outer, blocks * block, inner)
    return done[:, rest:] if reverse else done[:, :length]


def _whole_blocks(x: Any, axis: int, block: int, start: Any, reverse: bool) -> tuple[Any, int]:
    """An array whose axis is filled up to whole blocks, where the loop ends, and by how many elements."""
    rest = -x.shape[axis] % block
    edges = [(0, 0, 0)] * x.ndim
    edges[axis] = (rest, 0, 0) if reverse else (0, rest, 0)
    return (lax.pad(x, start, edges) if rest else x), rest


def _loop(x: Any, combine: Combine, start: Any, reverse: bool) -> Any:
    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = combine(carry, row)
        return carry, carry

    return lax.scan(step, jnp.full(x.shape[1:], start, x.dtype), x, reverse=reverse)[1]


def _block(length: int) -> int:
    """Elements per block of a long axis; the whole axis where it is short."""
    return length if length <= LANES else min(LONGEST, 1 << (isqrt(length).bit_length()))


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
