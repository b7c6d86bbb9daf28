"""What users pass in, turned into nodes: tensors, Python numbers, NumPy and jax arrays, sequences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.core.node import Node, aval_of, leaf
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import recorder
from graphopt.lazy.record.tensor_base import TensorBase

NUMBERS = (bool, int, float, complex)


def default_device() -> Any:
    """The device of arrays that name none: jax's default device."""
    config: Any = jax.config
    chosen = config.jax_default_device
    if chosen is None:
        return _first_device()
    return jax.devices(chosen)[0] if isinstance(chosen, str) else chosen


_device: list[Any] = []


def _first_device() -> Any:
    if not _device:
        _device.append(jax.devices()[0])
    return _device[0]


def as_device(device: Any) -> Any:
    """A jax device from itself, a platform name such as ``cpu``, or ``cpu:1``.

    Raises:
        LazyValueError: there is no such device.
    """
    if device is None:
        return default_device()
    if isinstance(device, jax.Device):
        return device
    try:
        platform, _, index = str(device).partition(":")
        return jax.devices(platform)[int(index or 0)]
    except (RuntimeError, IndexError, ValueError) as error:
        raise LazyValueError(
            what=f"there is no device {device!r}",
            where=source_lines.line_of(source_lines.here()),
            fix=f"Use one of {', '.join(map(str, jax.devices()))}.",
        ) from error


def node_of(x: Any, name: str) -> Node:
    """The node of a tensor; jax and NumPy arrays are taken over.

    Raises:
        LazyTypeError: anything else.
    """
    if isinstance(x, TensorBase):
        return x._node
    if isinstance(x, (np.ndarray, np.generic)):
        return from_numpy(np.asarray(x), None)
    if isinstance(x, jax.Array):
        return from_jax_array(x)
    raise LazyTypeError(
        what=f"{name} takes tensors, got {type(x).__name__}",
        where=source_lines.line_of(source_lines.here()),
        fix="Make a tensor with lt.asarray.",
    )


def from_numpy(array: np.ndarray[Any, Any], device: Any, copy: bool = True) -> Node:
    """A leaf with the contents of a NumPy array, copied unless the caller gives the array away."""
    dtype = dtypes.from_numpy(array.dtype)
    device = as_device(device)
    if copy or not array.flags.c_contiguous or array.dtype.byteorder == ">":
        array = np.array(array, dtype=dtype.np, order="C")
    array.flags.writeable = False
    return leaf(array, aval_of(array.shape, dtype, device))


def from_jax_array(array: jax.Array) -> Node:
    """A leaf that refers to a jax array (or tracer) without copying it."""
    dtype = dtypes.from_numpy(array.dtype)
    if isinstance(array, jax.core.Tracer):
        return leaf(array, aval_of(tuple(array.shape), dtype, default_device()))
    devices = list(array.devices())
    if len(devices) != 1:
        raise LazyValueError(
            what=f"an array on {len(devices)} devices",
            where=source_lines.line_of(source_lines.here()),
            fix="Gather it on one device with jax.device_put.",
        )
    node = leaf(array, aval_of(tuple(array.shape), dtype, devices[0]))
    node.own = None
    return node


def pair(name: str, x1: Any, x2: Any) -> tuple[Node, Node]:
    """The nodes of two operands of which at most one is a Python number."""
    if isinstance(x1, TensorBase):
        a = x1._node
        return a, operand(x2, a, name)
    if isinstance(x2, TensorBase):
        b = x2._node
        return operand(x1, b, name), b
    if isinstance(x1, NUMBERS) and not isinstance(x1, np.generic):
        if isinstance(x2, NUMBERS) and not isinstance(x2, np.generic):
            raise LazyTypeError(
                what=f"{name} of two Python numbers",
                where=source_lines.line_of(source_lines.here()),
                fix="Make one of them a tensor with lt.asarray.",
            )
        b = node_of(x2, name)
        return operand(x1, b, name), b
    a = node_of(x1, name)
    return a, operand(x2, a, name)


def operand(x: Any, beside: Node, name: str) -> Node:
    """The node of an operand next to another one, which gives Python numbers their dtype."""
    if isinstance(x, TensorBase):
        return x._node
    if isinstance(x, NUMBERS):  # includes NumPy's float64, complex128 and bool scalars
        x = x.item() if isinstance(x, np.generic) else x
        return recorder.scalar_beside(x, beside.aval)
    if isinstance(x, np.generic) and x.dtype.kind in "biufc":
        return operand(x.item(), beside, name)
    return node_of(x, name)


def cast(node: Node, dtype: DType) -> Node:
    """The node converted to a dtype."""
    if node.aval.dtype is dtype:
        return node
    found: Node = recorder.record(OPS["astype"], (node,), (dtype.np,))._node
    return found


def axes_of(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Non-negative axes from an int, a tuple or None (all).

    Raises:
        LazyValueError: out of range, or one axis twice.
    """
    if axis is None:
        return tuple(range(ndim))
    given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    found = tuple(axis_of(a, ndim, name) for a in given)
    if len(set(found)) != len(found):
        raise LazyValueError(
            what=f"{name}: axis {given} names one axis twice",
            where=source_lines.line_of(source_lines.here()),
            fix="Name each axis once.",
        )
    return found


def axis_of(axis: Any, ndim: int, name: str) -> int:
    """A non-negative axis.

    Raises:
        LazyValueError: out of range.
    """
    try:
        position = axis.__index__()
    except (AttributeError, TypeError):
        raise LazyTypeError(
            what=f"{name}: axis {axis!r} is no integer",
            where=source_lines.line_of(source_lines.here()),
            fix="Give axes as integers.",
        ) from None
    if not -ndim <= position < ndim:
        raise LazyValueError(
            what=f"{name}: axis {position} is out of range for {ndim} axes",
            where=source_lines.line_of(source_lines.here()),
            fix=f"Use an axis from {-ndim} to {ndim - 1}." if ndim else "The array has no axes.",
        )
    return int(position % ndim)


def shape_of(shape: Any, name: str) -> tuple[int, ...]:
    """A shape from an int or a sequence of ints.

    Raises:
        LazyValueError: a negative length.
    """
    lengths = (shape,) if not isinstance(shape, Iterable) else tuple(shape)
    found = tuple(int(n.__index__()) for n in lengths)
    if any(n < 0 for n in found):
        raise LazyValueError(
            what=f"{name}: negative length in shape {found}",
            where=source_lines.line_of(source_lines.here()),
            fix="Give lengths of zero or more.",
        )
    return found
