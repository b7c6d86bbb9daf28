"""Recording operations on a value and a Python number."""

from __future__ import annotations

from typing import Any, Final

from graphopt.lazy.core.node import Node, Op
from graphopt.lazy.core.source_lines import here
from graphopt.lazy.record import recorder
from graphopt.lazy.record.numbers import number_type, scalar_beside
from graphopt.lazy.record.recorder import entered, extended, record2, state
from graphopt.lazy.record.threads import Recorder

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
    if local.next is local.end:
        found = _recorded_anew(local, op, a, value, 1)
        if found is not None:
            return found
    found = record2(op, a, scalar_beside(value, a.aval))
    if value != 0 and value != 1:
        _expect_number(local, op, 1, value)
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
    if local.next is local.end:
        found = _recorded_anew(local, op, b, value, 0)
        if found is not None:
            return found
    found = record2(op, scalar_beside(value, b.aval), b)
    if value != 0 and value != 1:
        _expect_number(local, op, 0, value)
    return found


def _recorded_anew(local: Recorder, op: Op, node: Node, value: Any, position: int) -> Any:
    """The result where no trace is followed and all is known of the operands' types; else None.

    Args:
        local: the recorder of this thread.
        op: the operation.
        node: the operand that is a value.
        value: the operand that is a number.
        position: of the number.
    """
    kind = type(value)
    own = number_type(kind, node.aval)
    if own is None or value == 0 or value == 1:
        return None
    place = local.recording.place(node)
    avals = (node.aval, own.aval) if position else (own.aval, node.aval)
    instr = op.table.get(((), avals))
    if place is None or instr is None:
        return None
    number = -1 - len(local.numbers)
    local.numbers.append(value)
    if position:
        codes, operands = (place, -own.id), (place, number)
    else:
        codes, operands = (-own.id, place), (number, place)
    return extended(local, instr, codes, operands, False, here(4), kind)


def _expect_number(local: Recorder, op: Op, position: int, value: Any) -> None:
    """Lets the last move be followed without a node for its number."""
    move, kind = local.next.parent, type(value)
    if move.instr is None or move.instr.op is not op:
        return  # the cut of a trace that is too long leaves nothing
    if local.next is not local.end:
        move.expect_number(position, kind)
    elif kind is not bool and value != 0 and value != 1:
        move.kind = kind
