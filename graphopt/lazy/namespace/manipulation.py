"""Manipulation functions (array API standard, "Manipulation functions")."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.infer import broadcast
from graphopt.lazy.core.node import Node
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.namespace.remembered import remembered
from graphopt.lazy.ops.arrays import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.recorder import record
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.runtime import cut

__all__ = """broadcast_arrays broadcast_shapes broadcast_to concat expand_dims flip moveaxis
    permute_dims repeat reshape roll squeeze stack tile unstack""".split()


def _fail(what: str, fix: str, kind: Any = LazyValueError) -> Exception:
    return kind(what=what, where=source_lines.line_of(source_lines.here()), fix=fix)  # type: ignore[no-any-return]


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that several broadcast to.

    Raises:
        LazyValueError: there is none.
    """
    known = [operands.shape_of(shape, "broadcast_shapes") for shape in shapes]
    return broadcast("broadcast_shapes", tuple(known)) if known else ()


@remembered
def broadcast_to(x: Any, /, shape: Any) -> Any:
    """`x` repeated along new axes and axes of length 1."""
    node = operands.node_of(x, "broadcast_to")
    lengths = operands.shape_of(shape, "broadcast_to")
    if broadcast("broadcast_to", (node.aval.shape, lengths)) != lengths:
        raise _fail(
            f"shape {node.aval.shape} cannot be broadcast to {lengths}", "Give a larger one."
        )
    return record(OPS["broadcast_to"], (node,), (lengths,))


def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """All arrays in the shape they broadcast to."""
    shape = broadcast_shapes(*(x.shape for x in arrays))
    return tuple(broadcast_to(x, shape) for x in arrays)


def _joined(arrays: Any, name: str) -> list[Node]:
    nodes = [operands.node_of(x, name) for x in arrays]
    if not nodes:
        raise _fail(f"{name} of no arrays", "Pass at least one.")
    dtype = nodes[0].aval.dtype
    if all(n.aval.dtype is dtype for n in nodes):
        return nodes
    dtype = dtypes.promote(n.aval.dtype for n in nodes)
    return [operands.cast(n, dtype) for n in nodes]


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Arrays joined along an existing axis; None flattens them first."""
    nodes = _joined(arrays, "concat")
    if axis is None:
        nodes = [record(OPS["reshape"], (n,), ((n.aval.size,),))._node for n in nodes]
        axis = 0
    position = operands.axis_of(axis, len(nodes[0].aval.shape), "concat")
    for node in nodes:
        shape = list(node.aval.shape)
        if len(shape) == len(nodes[0].aval.shape):
            shape[position] = nodes[0].aval.shape[position]
        if tuple(shape) != nodes[0].aval.shape:
            raise _fail(
                f"concat of shapes {[n.aval.shape for n in nodes]} along axis {position}",
                "All other axes must be equally long.",
            )
    return record(OPS["concat"], tuple(nodes), (position,))


def stack(arrays: Any, /, *, axis: int = 0) -> Any:
    """Arrays of one shape joined along a new axis."""
    nodes = _joined(arrays, "stack")
    if any(n.aval.shape != nodes[0].aval.shape for n in nodes):
        raise _fail(f"stack of shapes {[n.aval.shape for n in nodes]}", "Give equal shapes.")
    position = operands.axis_of(axis, len(nodes[0].aval.shape) + 1, "stack")
    return record(OPS["stack"], tuple(nodes), (position,))


@remembered
def expand_dims(x: Any, /, axis: Any = 0) -> Any:
    """`x` with new axes of length 1 at these positions of the result."""
    node = operands.node_of(x, "expand_dims")
    extra = len(axis) if isinstance(axis, (tuple, list)) else 1
    ndim = len(node.aval.shape) + extra
    axes = operands.axes_of(axis, ndim, "expand_dims")
    lengths = iter(node.aval.shape)
    shape = tuple(1 if k in axes else next(lengths) for k in range(ndim))
    return record(OPS["reshape"], (node,), (shape,))


@remembered
def squeeze(x: Any, /, axis: Any) -> Any:
    """`x` without these axes of length 1.

    Raises:
        LazyValueError: one of them is longer.
    """
    node = operands.node_of(x, "squeeze")
    axes = operands.axes_of(axis, len(node.aval.shape), "squeeze")
    if any(node.aval.shape[a] != 1 for a in axes):
        raise _fail(f"squeeze of axes {axes} of shape {node.aval.shape}", "Name axes of length 1.")
    return record(OPS["squeeze"], (node,), (axes,))


@remembered
def flip(x: Any, /, *, axis: Any = None) -> Any:
    """`x` in reverse order along axes (default: all)."""
    node = operands.node_of(x, "flip")
    return record(OPS["flip"], (node,), (operands.axes_of(axis, len(node.aval.shape), "flip"),))


@remembered
def permute_dims(x: Any, /, axes: Any) -> Any:
    """`x` with its axes in another order.

    Raises:
        LazyValueError: not every axis exactly once.
    """
    node = operands.node_of(x, "permute_dims")
    order = operands.axes_of(axes, len(node.aval.shape), "permute_dims")
    if len(order) != len(node.aval.shape):
        raise _fail(f"permute_dims{order} of {node.aval!r}", "Name every axis once.")
    return record(OPS["permute_dims"], (node,), (order,))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Any:
    """`x` with axes moved to other positions, the rest in order."""
    ndim = x.ndim
    origin = operands.axes_of(source, ndim, "moveaxis")
    target = operands.axes_of(destination, ndim, "moveaxis")
    if len(origin) != len(target):
        raise _fail(f"moveaxis from {origin} to {target}", "Name as many sources as destinations.")
    order = [k for k in range(ndim) if k not in origin]
    for position, axis in sorted(zip(target, origin, strict=True)):
        order.insert(position, axis)
    return permute_dims(x, tuple(order))


@remembered
def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Any:
    """`x` in another shape of the same size; one length may be -1.

    `copy` makes no difference: values are immutable.
    """
    node = operands.node_of(x, "reshape")
    lengths = [int(n.__index__()) for n in (shape if not hasattr(shape, "__index__") else (shape,))]
    if lengths.count(-1) == 1:
        rest = math.prod(n for n in lengths if n != -1)
        if rest and node.aval.size % rest == 0:
            lengths[lengths.index(-1)] = node.aval.size // rest
    if math.prod(lengths) != node.aval.size or any(n < 0 for n in lengths):
        raise _fail(
            f"reshape of {node.aval!r} to {tuple(shape) if not isinstance(shape, int) else shape}",
            "Give a shape of the same size.",
        )
    return record(OPS["reshape"], (node,), (tuple(lengths),))


@remembered
def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Any:
    """`x` with elements shifted cyclically; without an axis, through the flattened array."""
    node = operands.node_of(x, "roll")
    if axis is None:
        if isinstance(shift, (tuple, list)) and len(shift) != 1:
            raise _fail("roll by several shifts without axes", "Name an axis per shift.")
        by = shift[0] if isinstance(shift, (tuple, list)) else shift
        flat = record(OPS["reshape"], (node,), ((node.aval.size,),))
        rolled = record(OPS["roll"], (flat._node,), ((int(by),), (0,)))
        return record(OPS["reshape"], (rolled._node,), (node.aval.shape,))
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,)
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise _fail(f"roll by {shifts} along {axes}", "Name an axis per shift.")
    found = tuple(operands.axis_of(a, len(node.aval.shape), "roll") for a in axes)
    return record(OPS["roll"], (node,), (tuple(int(s) for s in shifts), found))


def tile(x: Any, repetitions: Any, /) -> Any:
    """`x` repeated as a whole along each axis."""
    node = operands.node_of(x, "tile")
    return record(OPS["tile"], (node,), (operands.shape_of(repetitions, "tile"),))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element repeated; counts given as a tensor are observed, since the shape depends on them.

    Raises:
        LazyTypeError: counts that are no integers.
    """
    node = operands.node_of(x, "repeat")
    if axis is None:
        node = record(OPS["reshape"], (node,), ((node.aval.size,),))._node
    position = operands.axis_of(0 if axis is None else axis, len(node.aval.shape), "repeat")
    if isinstance(repeats, int):
        if repeats < 0:
            raise _fail(f"repeat by {repeats}", "Give zero or more.")
        return record(OPS["repeat"], (node,), (repeats, position))
    counts = (
        cut.host(repeats._node, "repeat")
        if isinstance(repeats, TensorBase)
        else np.asarray(repeats)
    )
    if counts.dtype.kind not in "iu":
        raise _fail("repeat by counts that are no integers", "Use integers.", LazyTypeError)
    if counts.size == 1:
        return record(OPS["repeat"], (node,), (int(counts.reshape(())), position))
    indices = np.repeat(np.arange(node.aval.shape[position]), counts)
    from graphopt.lazy.namespace.searching import take

    chosen = recorder.new_tensor(operands.from_numpy(indices, node.aval.device, copy=False))
    return take(recorder.hold(node), chosen, axis=position)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The parts of `x` along an axis, each without it."""
    position = operands.axis_of(axis, x.ndim, "unstack")
    before = (slice(None),) * position
    return tuple(x[(*before, k)] for k in range(x.shape[position]))
