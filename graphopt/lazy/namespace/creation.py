"""Creation functions (array API standard, "Creation functions")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from graphopt.lazy.array import interop
from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import ConversionError, LazyTypeError, LazyValueError
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.recorder import record
from graphopt.lazy.record.tensor_base import TensorBase

__all__ = """arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones
    ones_like tril triu zeros zeros_like""".split()

from_dlpack = interop.from_dlpack


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """A tensor from a tensor, a number, nested sequences, NumPy or jax arrays, or a buffer.

    NumPy arrays and buffers are copied (their owner may write to them); jax arrays are referred to.

    Raises:
        LazyValueError: ``copy=False`` where a copy is needed; ragged nesting.
        LazyTypeError: no such dtype.
    """
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    if isinstance(obj, TensorBase):
        return _from_tensor(obj, wanted, device, copy)
    if isinstance(obj, jax.Array):
        tensor = recorder.new_tensor(operands.from_jax_array(obj))
        return _from_tensor(tensor, wanted, device, copy)
    if copy is False:
        if hasattr(obj, "__dlpack__"):
            return from_dlpack(obj, device=device, copy=False)
        raise LazyValueError(
            what=f"a tensor from {type(obj).__name__} without a copy",
            where=source_lines.line_of(source_lines.here()),
            fix="Leave out copy=False.",
        )
    array = _numpy_of(obj, wanted)
    return recorder.new_tensor(operands.from_numpy(array, device, copy=False))


def _from_tensor(x: Any, wanted: DType | None, device: Any, copy: bool | None) -> Any:
    if copy is False and wanted not in (None, x.dtype):
        raise LazyValueError(
            what=f"{x.dtype} as {wanted} without a copy",
            where=source_lines.line_of(source_lines.here()),
            fix="Leave out copy=False.",
        )
    if device is not None:
        x = interop.to_device(x, device)
    if wanted is not None and wanted is not x.dtype:
        return recorder.hold(operands.cast(x._node, wanted))
    return recorder.hold(x._node) if copy else x


def _numpy_of(obj: Any, wanted: DType | None) -> np.ndarray[Any, Any]:
    """A fresh NumPy array; Python numbers take the default dtypes."""
    try:
        if isinstance(obj, (bool, int, float, complex)) and not isinstance(obj, np.generic):
            dtype = wanted or dtypes._PYTHON[type(obj)]
            return np.array(obj, dtype.np)
        if isinstance(obj, (np.ndarray, np.generic)):
            return np.array(obj, None if wanted is None else wanted.np, order="C")
        if isinstance(obj, (list, tuple)):
            return _from_nested(obj, wanted)
        array = np.array(obj, order="C")
        if array.dtype == object:
            raise LazyTypeError(
                what=f"a tensor from {type(obj).__name__}",
                where=source_lines.line_of(source_lines.here()),
                fix="Pass numbers, nested sequences of them, or an array.",
            )
        return array if wanted is None else array.astype(wanted.np)
    except OverflowError as error:
        raise ConversionError(
            what=str(error),
            where=source_lines.line_of(source_lines.here()),
            fix="Use a wider dtype.",
        ) from error
    except ValueError as error:
        if isinstance(error, LazyValueError):
            raise
        raise LazyValueError(
            what=f"asarray: {error}",
            where=source_lines.line_of(source_lines.here()),
            fix="Make all nested sequences equally long.",
        ) from error


def _from_nested(obj: Sequence[Any], wanted: DType | None) -> np.ndarray[Any, Any]:
    leaves: list[Any] = []
    plain = _unwrapped(obj, leaves)
    if wanted is not None:
        return np.array(plain, wanted.np)
    arrays = [dtypes.from_numpy(x.dtype) for x in leaves if hasattr(x, "dtype")]
    numbers = {type(x) for x in leaves if not hasattr(x, "dtype")}
    array = np.array(plain)
    if array.size == 0 and not arrays:
        return array.astype(dtypes.DEFAULT_FLOAT.np)
    if arrays:
        dtype = dtypes.promote(arrays)
        for kind in numbers:
            dtype = dtypes.scalar_dtype(kind(1), dtype)
        return np.array(plain, dtype.np)
    order = [kind for kind in (complex, float, int, bool) if kind in numbers]
    if not order or numbers - {complex, float, int, bool}:
        raise LazyTypeError(
            what="asarray of something that is no number",
            where=source_lines.line_of(source_lines.here()),
            fix="Pass numbers, nested sequences of them, or an array.",
        )
    if order[0] is int and array.dtype.kind in "fuO":  # beyond int64: NumPy would take a float
        return np.array(plain, np.uint64 if array.dtype.kind == "u" else np.int64)
    return np.array(plain, dtypes._PYTHON[order[0]].np)


def _unwrapped(obj: Any, leaves: list[Any]) -> Any:
    """Nested lists with tensors computed; `leaves` collects what is not a sequence."""
    if isinstance(obj, (list, tuple)):
        return [_unwrapped(x, leaves) for x in obj]
    if isinstance(obj, (TensorBase, jax.Array)):
        obj = np.asarray(obj)
    leaves.append(obj)
    return obj


def _filled(shape: Any, value: Any, dtype: DType, device: Any, name: str) -> Any:
    lengths = operands.shape_of(shape, name)
    node = recorder.scalar(value, dtype, operands.as_device(device))
    return record(OPS["full"], (node,), (lengths,))


def _dtype_or(dtype: Any, default: DType) -> DType:
    return default if dtype is None else dtypes.as_dtype(dtype)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros."""
    return _filled(shape, 0, _dtype_or(dtype, dtypes.DEFAULT_FLOAT), device, "zeros")


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones."""
    return _filled(shape, 1, _dtype_or(dtype, dtypes.DEFAULT_FLOAT), device, "ones")


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros: uninitialised memory would save nothing here."""
    return zeros(shape, dtype=dtype, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """One value everywhere; the dtype defaults to that of the value's Python type."""
    if isinstance(fill_value, TensorBase):
        tensor: Any = fill_value
        wanted = tensor.dtype if dtype is None else dtypes.as_dtype(dtype)
        lengths = operands.shape_of(shape, "full")
        node = interop.to_device(tensor, device)._node if device is not None else tensor._node
        return record(OPS["full"], (operands.cast(node, wanted),), (lengths,))
    if isinstance(fill_value, np.generic):
        fill_value = fill_value.item()
    wanted = dtypes._PYTHON[type(fill_value)] if dtype is None else dtypes.as_dtype(dtype)
    return _filled(shape, fill_value, wanted, device, "full")


def _like(x: Any, dtype: Any, device: Any) -> tuple[DType, Any]:
    node = operands.node_of(x, "like")
    return _dtype_or(dtype, node.aval.dtype), node.aval.device if device is None else device


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros of the shape (and dtype and device) of `x`."""
    return _filled(x.shape, 0, *_like(x, dtype, device), "zeros_like")


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Ones of the shape (and dtype and device) of `x`."""
    return _filled(x.shape, 1, *_like(x, dtype, device), "ones_like")


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> Any:
    """Zeros of the shape (and dtype and device) of `x`."""
    return _filled(x.shape, 0, *_like(x, dtype, device), "empty_like")


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Any:
    """One value in the shape (and dtype and device) of `x`."""
    wanted, where = _like(x, dtype, device)
    return full(x.shape, fill_value, dtype=wanted, device=where)


def _leaf(array: np.ndarray[Any, Any], device: Any) -> Any:
    return recorder.new_tensor(operands.from_numpy(array, device, copy=False))


def arange(
    start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None
) -> Any:
    """Evenly spaced values in [start, stop), ``ceil((stop - start) / step)`` of them.

    Raises:
        LazyValueError: a step of zero.
    """
    start, stop, step = (_plain_number(v) for v in (start, stop, step))
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise LazyValueError(
            what="arange with step 0",
            where=source_lines.line_of(source_lines.here()),
            fix="Give another step.",
        )
    integral = all(isinstance(v, int) for v in (start, stop, step))
    wanted = _dtype_or(dtype, dtypes.DEFAULT_INT if integral else dtypes.DEFAULT_FLOAT)
    count = len(range(start, stop, step)) if integral else max(0, math.ceil((stop - start) / step))
    if wanted.kind in ("signed", "unsigned") and integral:
        where = operands.as_device(device)
        result = record(OPS["iota"], (), (count, np.dtype(np.int64)), where)
        if step != 1:
            result = result * step
        if start != 0:
            result = result + start
        return recorder.hold(operands.cast(result._node, wanted))
    values = start + np.arange(count, dtype=np.float64) * step
    return _leaf(values.astype(wanted.np), device)


def _plain_number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None,
    endpoint: bool = True,
) -> Any:  # fmt: skip
    """`num` evenly spaced values from start to stop, the last one included unless told otherwise.

    Raises:
        LazyValueError: a negative `num`.
    """
    start, stop, num = (_plain_number(v) for v in (start, stop, num))
    if num < 0:
        raise LazyValueError(
            what=f"linspace with num={num}",
            where=source_lines.line_of(source_lines.here()),
            fix="Give zero or more.",
        )
    is_complex = isinstance(start, complex) or isinstance(stop, complex)
    default = dtypes.DEFAULT_COMPLEX if is_complex else dtypes.DEFAULT_FLOAT
    wanted = _dtype_or(dtype, default)
    values = np.linspace(start, stop, num, endpoint=endpoint)
    return _leaf(values.astype(wanted.np), device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None
) -> Any:
    """Ones on the k-th diagonal, zeros elsewhere."""
    wanted = _dtype_or(dtype, dtypes.DEFAULT_FLOAT)
    rows, columns = operands.shape_of((n_rows, n_rows if n_cols is None else n_cols), "eye")
    k = max(-rows, min(columns, int(k)))
    return record(OPS["eye"], (), (rows, columns, k, wanted.np), operands.as_device(device))


def _matrix(x: Any, name: str) -> Node:
    node = operands.node_of(x, name)
    if len(node.aval.shape) < 2:
        raise LazyValueError(
            what=f"{name} of a tensor with {len(node.aval.shape)} axes",
            where=source_lines.line_of(source_lines.here()),
            fix="Give it two axes or more.",
        )
    return node


def tril(x: Any, /, *, k: int = 0) -> Any:
    """Zeros above the k-th diagonal."""
    return record(OPS["tril"], (_matrix(x, "tril"),), (int(k),))


def triu(x: Any, /, *, k: int = 0) -> Any:
    """Zeros below the k-th diagonal."""
    return record(OPS["triu"], (_matrix(x, "triu"),), (int(k),))


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Any, ...]:
    """Coordinate matrices from coordinate vectors.

    Raises:
        LazyValueError: an `indexing` other than ``xy`` and ``ij``, or arrays that are no vectors.
    """
    nodes = [operands.node_of(x, "meshgrid") for x in arrays]
    if indexing not in ("xy", "ij") or any(len(n.aval.shape) > 1 for n in nodes):
        raise LazyValueError(
            what=f"meshgrid with indexing={indexing!r} of shapes {[n.aval.shape for n in nodes]}",
            where=source_lines.line_of(source_lines.here()),
            fix="Use xy or ij, and vectors.",
        )
    order = list(range(len(nodes)))
    if indexing == "xy" and len(nodes) > 1:
        order[:2] = [1, 0]
    shape = [0] * len(nodes)
    for k, node in enumerate(nodes):
        shape[order[k]] = node.aval.size
    result = []
    for k, node in enumerate(nodes):
        column = [1] * len(nodes)
        column[order[k]] = node.aval.size
        grid = record(OPS["reshape"], (node,), (tuple(column),))
        result.append(record(OPS["broadcast_to"], (grid._node,), (tuple(shape),)))
    return tuple(result)
