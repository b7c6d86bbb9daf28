"""Recording operations on a value and a Python number."""

from __future__ import annotations

from typing import Any

from graphopt.lazy.core.node import Node, Op
from graphopt.lazy.record.numbers import scalar_beside
from graphopt.lazy.record.recorder import record2, result, state
from graphopt.lazy.record.traces import Move


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
        return result(local, move)
    found = record2(op, a, scalar_beside(value, a.aval))
    _expect_number(local.next.parent, op, 1, type(value))
    return found


def record_number_first(op: Op, value: Any, b: Node) -> Any:
    """Records an operation on a Python number and a value; see `record_number`."""
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
        return result(local, move)
    found = record2(op, scalar_beside(value, b.aval), b)
    _expect_number(local.next.parent, op, 0, type(value))
    return found


def _expect_number(move: Move | None, op: Op, position: int, kind: type) -> None:
    """Lets a move be followed without a node for its number, which may be any but 0 and 1."""
    if move is None or move.op is not op or move.merged or move.kind is kind or not move.instr:
        return  # the cut of a trace that is too long leaves nothing
    aval, code = move.instr.in_avals[position], move.codes[1 - position]
    if code > 0 and move.operands[position] < 0 and aval.dtype.is_float:
        move.a, move.kind = code, kind
        if position:
            move.right = op
        else:
            move.left = op
