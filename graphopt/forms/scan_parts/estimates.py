"""How long an iteration takes in a loop, and among all iterations at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import jax.extend.core as jex
import numpy as np

from graphopt.forms.scan_parts.movable import JOINS, VIEWS, nbytes, size
from graphopt.forms.traced.times import OPCODES, element_ns
from graphopt.machine import CpuCosts

ROW_NS: Final = 2.0
"""To find the place of a row."""

CALL_NS: Final = 3.0
"""A function of one number takes so much longer than one of many at a time, per element."""

WIDE_ROW: Final = 64
"""Elements of a row that fills some vectors."""

SHORT_ROWS: Final = 3.0
"""XLA joins many short rows so much more slowly than a few."""

FEW_ROWS: Final = 2
"""Products of fewer rows, or columns, read a matrix for little work."""


def together_ns(equation: Any, costs: CpuCosts) -> float:
    """Nanoseconds of one iteration of an equation, of all iterations at once."""
    return _one_ns(equation, costs, 1.0 / costs.operations_per_ns, 0.0)


def in_loop_ns(equation: Any, costs: CpuCosts) -> float:
    """Nanoseconds of an equation in one iteration of a loop."""
    if equation.primitive.name == "dot_general":
        slower = costs.fast_flops_per_ns / costs.vector_flops_per_ns
        return together_ns(equation, costs) * (slower if _rows_of(equation) < FEW_ROWS else 1.0)
    if max(map(size, equation.outvars), default=1) >= costs.few_elements:
        return together_ns(equation, costs)
    return _one_ns(equation, costs, 1.0 / costs.scalar_operations_per_ns, CALL_NS)


def _one_ns(equation: Any, costs: CpuCosts, simple_ns: float, call_ns: float) -> float:
    name, out = equation.primitive.name, equation.outvars[0]
    if name in VIEWS:
        return 0.0
    if name == "dot_general":
        return 2.0 * size(out) * contracted(equation) / costs.fast_flops_per_ns
    dtype: np.dtype[Any] = out.aval.dtype
    count = max(map(size, (out, *equation.invars)))
    if name in JOINS:
        short = _is_short(equation) and not call_ns
        return count * costs.reduce_ns * (SHORT_ROWS if short else 1.0)
    if name in ("div", "rem") and dtype.kind in "iu":
        return count * costs.integer_ns["divide"]
    if name in OPCODES:
        return count * (element_ns(name, dtype, costs) + call_ns)
    return count * simple_ns * max(1.0, dtype.itemsize / 4)


def _is_short(equation: Any) -> bool:
    """Whether an equation joins short rows."""
    (operand, *_) = equation.invars
    last = len(operand.aval.shape) - 1
    return last in equation.params.get("axes", ()) and operand.aval.shape[last] < WIDE_ROW


def contracted(equation: Any) -> int:
    """Numbers that each result of a product sums over."""
    ((dims, _), _) = equation.params["dimension_numbers"]
    shape: Sequence[int] = equation.invars[0].aval.shape
    return prod(shape[d] for d in dims)


def _rows_of(equation: Any) -> int:
    """The fewer rows or columns of a product, batches of products apart."""
    contracted, batched = equation.params["dimension_numbers"]
    counts = []
    for operand, own, more in zip(equation.invars, contracted, batched, strict=True):
        shape: Sequence[int] = operand.aval.shape
        counts.append(prod(n for d, n in enumerate(shape) if d not in own and d not in more))
    return min(counts)


def moved_ns(variable: Any, trips: int, costs: CpuCosts) -> float:
    """Nanoseconds to read or write one iteration's part of an array of all."""
    cached = trips * nbytes(variable) < costs.cached_bytes
    return nbytes(variable) / (costs.cached_bytes_per_ns if cached else costs.bytes_per_ns)


def row_ns(variable: Any, trips: int, costs: CpuCosts) -> float:
    """Nanoseconds to read or write one row in a loop."""
    if isinstance(variable, jex.Literal):
        return 0.0
    return ROW_NS + moved_ns(variable, trips, costs)


def kept_ns(variable: Any, trips: int, costs: CpuCosts) -> float:
    """Nanoseconds to put a value of the loop into an array, and to read it behind the loop."""
    return row_ns(variable, trips, costs) + moved_ns(variable, trips, costs)
