"""Searching, sorting, indexing and set functions (array API standard, chapters of those names)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from graphopt.lazy.array import indexing
from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.ops.indexing import TAKE
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.recorder import record
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.runtime import cut

__all__ = """argmax argmin argsort count_nonzero isin nonzero searchsorted sort take take_along_axis
    unique_all unique_counts unique_inverse unique_values where""".split()


def _fail(what: str, fix: str, kind: Any = LazyValueError) -> Exception:
    return kind(what=what, where=source_lines.line_of(source_lines.here()), fix=fix)  # type: ignore[no-any-return]


def _arg(name: str, x: Any, axis: int | None, keepdims: bool) -> Any:
    node = operands.node_of(x, name)
    if node.aval.dtype.kind == "complex":
        raise _fail(f"{name} of complex numbers", "Take lt.abs or lt.real.", LazyTypeError)
    axes = operands.axes_of(axis, len(node.aval.shape), name)
    if 0 in [node.aval.shape[a] for a in axes]:
        raise _fail(f"{name} of no elements", "Search axes of length one or more.")
    return record(OPS[name], (node,), (axes, bool(keepdims)))


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Position of the first largest element; without an axis, in the flattened array."""
    return _arg("argmax", x, axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
    """Position of the first smallest element; without an axis, in the flattened array."""
    return _arg("argmin", x, axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
    """Number of elements that are not zero."""
    node = operands.node_of(x, "count_nonzero")
    axes = operands.axes_of(axis, len(node.aval.shape), "count_nonzero")
    return record(OPS["count_nonzero"], (node,), (axes, bool(keepdims)))


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """Positions of elements that are not zero, one tensor per axis; this observes `x`."""
    node = operands.node_of(x, "nonzero")
    if not node.aval.shape:
        raise _fail("nonzero of a tensor without axes", "Give it an axis.")
    found = np.nonzero(cut.host(node, "nonzero"))
    return tuple(_made(p.astype(np.int64), node) for p in found)


def _made(array: np.ndarray[Any, Any], like: Node) -> Any:
    return recorder.new_tensor(operands.from_numpy(array, like.aval.device))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where elements of `x2` would go in the sorted vector `x1`."""
    if sorter is not None:
        x1 = take(x1, sorter, axis=0)
    a, b = operands.pair("searchsorted", x1, x2)
    dtype = dtypes.PROMOTION[a.aval.dtype, b.aval.dtype]
    if side not in ("left", "right") or len(a.aval.shape) != 1:
        raise _fail(f"searchsorted({a.aval!r}, side={side!r})", "Search a vector, left or right.")
    nodes = operands.cast(a, dtype), operands.cast(b, dtype)
    return record(OPS["searchsorted"], nodes, (side,))


_WHERE: Final = OPS["where"]


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """`x1` where the condition is true, `x2` elsewhere."""
    if (
        isinstance(condition, TensorBase)
        and isinstance(x1, TensorBase)
        and isinstance(x2, TensorBase)
    ):
        test, a, b = condition._node, x1._node, x2._node
        if test.aval.dtype is dtypes.bool_ and a.aval.dtype is b.aval.dtype:
            return record(_WHERE, (test, a, b))
    test = operands.cast(operands.node_of(condition, "where"), dtypes.bool_)
    numbers = [isinstance(x, operands.NUMBERS) for x in (x1, x2)]
    if all(numbers):
        kind = type(x1 + x2) if not (isinstance(x1, bool) and isinstance(x2, bool)) else bool
        dtype = dtypes.as_dtype(kind)
        pair = [recorder.scalar(x, dtype, test.aval.device) for x in (x1, x2)]
        return record(OPS["where"], (test, *pair))
    a, b = operands.pair("where", x1, x2)
    dtype = dtypes.PROMOTION[a.aval.dtype, b.aval.dtype]
    return record(OPS["where"], (test, operands.cast(a, dtype), operands.cast(b, dtype)))


def _sortable(x: Any, axis: int, name: str) -> tuple[Node, int]:
    node = operands.node_of(x, name)
    return node, operands.axis_of(axis, len(node.aval.shape), name)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Sorted copy along an axis; NaN counts as the largest value."""
    node, position = _sortable(x, axis, "sort")
    return record(OPS["sort"], (node,), (position, bool(descending)))


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Positions that sort along an axis; always stable."""
    node, position = _sortable(x, axis, "argsort")
    return record(OPS["argsort"], (node,), (position, bool(descending)))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """Elements at these positions of an axis; negative ones count from the end.

    Raises:
        LazyIndexError: out of range; where the indices are still pending, when a result is observed.
    """
    node = operands.node_of(x, "take")
    ndim = len(node.aval.shape)
    if axis is None and ndim != 1:
        raise _fail(f"take from {ndim} axes without axis", "Name an axis.")
    position = operands.axis_of(0 if axis is None else axis, ndim, "take")
    chosen = _indices(indices, node, position, "take")
    return record(TAKE, (node, chosen), (position,))


def _indices(indices: Any, node: Node, axis: int, name: str) -> Node:
    if isinstance(indices, (int, list)):
        indices = np.asarray(indices, np.int64)
        if not indices.shape:
            return _checked(operands.from_numpy(indices, node.aval.device), node, axis)
    chosen = operands.node_of(indices, name)
    if chosen.aval.dtype.kind not in ("signed", "unsigned"):
        raise _fail(f"{name} by {chosen.aval.dtype} indices", "Use integers.", LazyTypeError)
    return _checked(chosen, node, axis)


def _checked(chosen: Node, node: Node, axis: int) -> Node:
    if isinstance(chosen.data, np.ndarray):
        indexing.check_range(chosen.data, node.aval.shape[axis])
    return chosen


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """Elements at positions along an axis, chosen separately for each place on the other axes."""
    node = operands.node_of(x, "take_along_axis")
    position = operands.axis_of(axis, len(node.aval.shape), "take_along_axis")
    chosen = _indices(indices, node, position, "take_along_axis")
    if len(chosen.aval.shape) != len(node.aval.shape):
        raise _fail(
            f"take_along_axis of {node.aval!r} by {chosen.aval!r}", "Give both as many axes."
        )
    return record(OPS["take_along_axis"], (node, chosen), (position,))


class UniqueAll(NamedTuple):
    """Result of `unique_all`: distinct values, first positions, inverse, counts."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`: distinct values and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`: distinct values and which of them each element is."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /) -> UniqueAll:
    """Distinct values (each NaN is distinct), sorted, with positions and counts; this observes `x`."""
    node = operands.node_of(x, "unique_all")
    array = cut.host(node, "unique")
    values, first, inverse, counts = np.unique(
        array, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    whole = (values, *(p.astype(np.int64) for p in (first, inverse.reshape(array.shape), counts)))
    return UniqueAll(*(_made(p, node) for p in whole))


def unique_counts(x: Any, /) -> UniqueCounts:
    """Distinct values and counts; this observes `x`."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Distinct values and which of them each element is; this observes `x`."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Any:
    """Distinct values; this observes `x`."""
    return unique_all(x).values


def isin(x1: Any, x2: Any, /, *, invert: bool = False) -> Any:
    """Whether each element of `x1` occurs in `x2`."""
    if isinstance(x1, operands.NUMBERS) and isinstance(x2, TensorBase):
        x1 = recorder.new_tensor(operands.from_numpy(np.asarray(x1, x2.dtype.np), x2.device))  # type: ignore[attr-defined]
    a, b = operands.pair("isin", x1, x2)
    from graphopt.lazy.namespace.elementwise import FUNCTIONS

    left = record(OPS["reshape"], (a,), ((*a.aval.shape, 1),))
    right = record(OPS["reshape"], (b,), ((b.aval.size,),))
    axes = (len(a.aval.shape),)
    found = record(OPS["any"], ((left == right)._node,), (axes, False))
    return FUNCTIONS["logical_not"](found) if invert else found
