"""Recording operations on a value and a Python number."""

from __future__ import annotations

from typing import Any, Final

from graphopt.lazy.core.node import Node, Op
from graphopt.lazy.record import recorder
from graphopt.lazy.record.moves import MET, Move
from graphopt.lazy.record.numbers import scalar_beside
from graphopt.lazy.record.recorder import entered, record2, state

_new: Final[Any] = object.__new__


def record_number(op: Op, a: Node, value: Any) -> Any:
    """Records an operation on a value and a Python number (bool, int, float or complex)."""
    local = state.now
    move = local.next
    if (
        move.right is op
        and local.values[move.a] is a
        and type(value) is move.kind
        and value != 0
        and value != 1
    ):
        local.next = move.next
        local.numbers.append(value)
        node = Node()
        node.move = move
        node.recording = local.recording
        node.aval = move.aval
        node.data = None
        local.values.append(node)
        tensor = _new(recorder.tensor_class)
        tensor._node = node
        local.handles.append(tensor)
        return tensor
    if (
        move.new_right is op
        and type(value) is move.kind
        and value != 0
        and value != 1
        and local.recording.takes(a, move.a)
    ):
        local.numbers.append(value)
        return entered(local, move)
    found = record2(op, a, scalar_beside(value, a.aval))
    _expect_number(local.next.parent, op, 1, type(value))
    return found


def record_number_first(op: Op, value: Any, b: Node) -> Any:
    """Records an operation on a Python number and a value; see `record_number`.

    Both are written out: following an operation is little more than a call.
    """
    local = state.now
    move = local.next
    if (
        move.left is op
        and local.values[move.a] is b
        and type(value) is move.kind
        and value != 0
        and value != 1
    ):
        local.next = move.next
        local.numbers.append(value)
        node = Node()
        node.move = move
        node.recording = local.recording
        node.aval = move.aval
        node.data = None
        local.values.append(node)
        tensor = _new(recorder.tensor_class)
        tensor._node = node
        local.handles.append(tensor)
        return tensor
    if (
        move.new_left is op
        and type(value) is move.kind
        and value != 0
        and value != 1
        and local.recording.takes(b, move.a)
    ):
        local.numbers.append(value)
        return entered(local, move)
    found = record2(op, scalar_beside(value, b.aval), b)
    _expect_number(local.next.parent, op, 0, type(value))
    return found


def _expect_number(move: Move | None, op: Op, position: int, kind: type) -> None:
    """Lets a move be followed without a node for its number, which may be any but 0 and 1."""
    if move is None or move.op is not op or move.merged or move.kind is kind or not move.instr:
        return  # the cut of a trace that is too long leaves nothing
    aval, code = move.instr.in_avals[position], move.codes[1 - position]
    number = move.codes[position]
    if number > 0 or number <= -MET or not aval.dtype.is_float or move.operands[position] >= 0:
        return
    if code > 0:
        move.a, move.kind = code, kind
        if position:
            move.right = op
        else:
            move.left = op
    elif code == -move.instr.in_avals[1 - position].id:  # a buffer
        move.a, move.kind = code, kind
        if position:
            move.new_right = op
        else:
            move.new_left = op
