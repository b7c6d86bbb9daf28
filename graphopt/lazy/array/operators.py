"""Operators of tensors. What follows an earlier trace is recorded here, without a further call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np

from graphopt.lazy.core import source_lines
from graphopt.lazy.core.node import Node, Op
from graphopt.lazy.errors import LazyTypeError, LazyValueError
from graphopt.lazy.record import operands
from graphopt.lazy.record.beside_numbers import record_number, record_number_first
from graphopt.lazy.record.recorder import hold, record2, scalar_beside, state, unlike_two
from graphopt.lazy.record.tensor_base import TensorBase

_PLAIN: Final = {bool: True, int: True, float: True, complex: True}
_new: Final[Any] = object.__new__

Operator = Callable[[Any, Any], Any]


def operator(op: Op) -> tuple[Operator, Operator, Operator]:
    """The methods of a binary operator: ``x + y``, ``1 + x`` and ``x += y``."""
    forward = _forward(op)
    return forward, _reflected(op), _in_place(op, forward)


def _forward(op: Op) -> Operator:
    def forward(self: Any, other: Any) -> Any:
        kind = type(other)
        if kind is type(self):
            local = state.now
            move = local.next
            if move.binary is op:
                values = local.values
                if values[move.a] is self._node and values[move.b] is other._node:
                    local.next = move.next
                    node = Node()
                    node.move = move
                    node.recording = local.recording
                    node.aval = move.aval
                    node.data = None
                    values.append(node)
                    tensor = _new(kind)
                    tensor._node = node
                    local.handles.append(tensor)
                    return tensor
            return unlike_two(local, op, self._node, other._node)
        if kind in _PLAIN:
            return record_number(op, self._node, other)
        found = _other(other, self)
        return NotImplemented if found is None else record2(op, self._node, found)

    return forward


def _reflected(op: Op) -> Operator:
    def reflected(self: Any, other: Any) -> Any:
        if type(other) in _PLAIN:
            return record_number_first(op, other, self._node)
        node = _other(other, self)
        return NotImplemented if node is None else record2(op, node, self._node)

    return reflected


def _in_place(op: Op, forward: Operator) -> Operator:
    def in_place(self: Any, other: Any) -> Any:
        """The operation's result under the tensor's own name; its shape and dtype stay.

        Raises:
            LazyTypeError: the result is of another kind, as of an integer and a float.
            LazyValueError: it has another shape, or is on another device.
        """
        result = forward(self, other)
        if result is NotImplemented:
            return result
        before, after = self._node.aval, result._node.aval
        if before is not after:
            if (before.shape, before.device) == (after.shape, after.device) and (
                before.dtype.kind == after.dtype.kind
            ):
                return hold(operands.cast(result._node, before.dtype))
            kind = LazyTypeError if before.dtype is not after.dtype else LazyValueError
            raise kind(
                what=f"in-place {op.name}: {before!r} would become {after!r}",
                where=source_lines.line_of(source_lines.here()),
                fix="Write x = x + y where the shape or dtype is to change.",
            )
        return result

    return in_place


def _other(x: Any, beside: Any) -> Any:
    """The node of a binary operator's other operand, or None if it is nothing we know."""
    if isinstance(x, TensorBase):
        return x._node
    node = beside._node
    if type(x) in _PLAIN:
        return scalar_beside(x, node.aval)
    if isinstance(x, (np.ndarray, np.generic, jax.Array)):
        return operands.operand(x, node, "operator")
    return None
