"""Reductions, cumulative operations and `diff` (array API standard, "Statistical", "Utility")."""

from __future__ import annotations

from typing import Any

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.namespace.remembered import remembered
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import operands
from graphopt.lazy.record.composites import composite
from graphopt.lazy.record.recorder import record

__all__ = """all any cumulative_prod cumulative_sum diff max mean min prod std sum var""".split()


def _reduce(
    name: str, x: Any, axis: Any, keepdims: bool, *more: Any, node: Node | None = None
) -> Any:
    node = operands.node_of(x, name) if node is None else node
    axes = operands.axes_of(axis, len(node.aval.shape), name)
    return record(OPS[name], (node,), (axes, bool(keepdims), *more))


def _sum_dtype(dtype: DType) -> DType:
    """The dtype that sums and products are formed in, so that small integers do not overflow."""
    if dtype.kind in ("bool", "signed"):
        return dtypes.DEFAULT_INT
    return dtypes.uint64 if dtype.kind == "unsigned" else dtype


def _total(name: str, x: Any, axis: Any, dtype: Any, keepdims: bool) -> Any:
    node = operands.node_of(x, name)
    wanted = _sum_dtype(node.aval.dtype) if dtype is None else dtypes.as_dtype(dtype)
    return _reduce(name, x, axis, keepdims, wanted.np, node=operands.cast(node, wanted))


@remembered
def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Sum; small integers are added up as 64-bit ones."""
    return _total("sum", x, axis, dtype, keepdims)


@remembered
def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """Product; small integers are multiplied as 64-bit ones."""
    return _total("prod", x, axis, dtype, keepdims)


def _extremum(name: str, x: Any, axis: Any, keepdims: bool) -> Any:
    node = operands.node_of(x, name)
    if node.aval.dtype.kind == "complex":
        raise LazyTypeError(
            what=f"{name} of complex numbers",
            where=source_lines.line_of(source_lines.here()),
            fix="Take lt.abs or lt.real first.",
        )
    axes = operands.axes_of(axis, len(node.aval.shape), name)
    if 0 in [node.aval.shape[a] for a in axes]:
        raise LazyValueError(
            what=f"{name} of no elements, of {node.aval!r} along {axes}",
            where=source_lines.line_of(source_lines.here()),
            fix="Reduce axes of length one or more.",
        )
    return _reduce(name, x, axis, keepdims, node=node)


@remembered
def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Largest element; NaN if there is one."""
    return _extremum("max", x, axis, keepdims)


@remembered
def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Smallest element; NaN if there is one."""
    return _extremum("min", x, axis, keepdims)


def _floating(x: Any, name: str) -> Node:
    node = operands.node_of(x, name)
    return node if node.aval.dtype.is_float else operands.cast(node, dtypes.DEFAULT_FLOAT)


@remembered
def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Arithmetic mean; of nothing, NaN."""
    return _reduce("mean", x, axis, keepdims, node=_floating(x, "mean"))


@remembered
def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Variance, divided by the number of elements less `correction`."""
    return _reduce("var", x, axis, keepdims, float(correction), node=_floating(x, "var"))


@composite()
def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """Square root of `var`."""
    from graphopt.lazy.namespace.elementwise import FUNCTIONS

    return FUNCTIONS["sqrt"](var(x, axis=axis, correction=correction, keepdims=keepdims))


@remembered
def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements are true (not zero)."""
    return _reduce("all", x, axis, keepdims)


@remembered
def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Whether some element is true (not zero)."""
    return _reduce("any", x, axis, keepdims)


def _cumulative(name: str, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    node = operands.node_of(x, name)
    ndim = len(node.aval.shape)
    if axis is None and ndim != 1:
        raise LazyValueError(
            what=f"{name} of {ndim} axes without axis",
            where=source_lines.line_of(source_lines.here()),
            fix="Name an axis.",
        )
    position = operands.axis_of(0 if axis is None else axis, ndim, name)
    wanted = _sum_dtype(node.aval.dtype) if dtype is None else dtypes.as_dtype(dtype)
    node = operands.cast(node, wanted)
    return record(OPS[name], (node,), (position, wanted.np, bool(include_initial)))


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Sums of the elements so far, starting with 0 if asked to."""
    return _cumulative("cumulative_sum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Products of the elements so far, starting with 1 if asked to."""
    return _cumulative("cumulative_prod", x, axis, dtype, include_initial)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Any:
    """n-th differences of neighbours along an axis.

    Raises:
        LazyValueError: a negative `n`.
    """
    from graphopt.lazy.namespace.manipulation import concat

    position = operands.axis_of(axis, x.ndim, "diff")
    if n < 0:
        raise LazyValueError(
            what=f"diff with n={n}",
            where=source_lines.line_of(source_lines.here()),
            fix="Give zero or more.",
        )
    parts = [part for part in (prepend, x, append) if part is not None]
    if n > 0 and len(parts) > 1:
        x = concat(parts, axis=position)
    before = (slice(None),) * position
    for _ in range(n):
        upper, lower = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = (upper != lower) if x.dtype.kind == "bool" else upper - lower
    return x
