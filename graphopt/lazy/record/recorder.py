"""Recording: operands in, tensors out. The hot path of the package.

What is recorded is compared with what came next the last time (`traces`). Where it agrees, a result is
a node and a handle; nothing is inferred or looked up.
"""

from __future__ import annotations

from typing import Any, Final

from graphopt.lazy.core import source_lines
from graphopt.lazy.core.infer import infer
from graphopt.lazy.core.node import Aval, Instr, Node, Op
from graphopt.lazy.record import moves
from graphopt.lazy.record.current import state as state
from graphopt.lazy.record.moves import Move
from graphopt.lazy.record.numbers import scalar, scalar_beside
from graphopt.lazy.record.rounds import comes_as
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.record.threads import Recorder, behind
from graphopt.lazy.record.threads import settings as settings

__all__ = ["behind", "scalar", "scalar_beside"]

_new: Final[Any] = object.__new__
_here: Final = source_lines.here

tensor_class: Any = TensorBase
"""The class of recorded results; `tensor.py` puts its own here."""


class _Hooks:
    """Functions of higher modules that recording calls."""

    limit_reached: Any = None
    round_ended: Any = None


hooks: Final = _Hooks()


def new_tensor(node: Node) -> Any:
    """A tensor around a node that holds a value."""
    tensor = _new(tensor_class)
    tensor._node = node
    return tensor


def record1(op: Op, a: Node) -> Any:
    """Records an operation without parameters on one operand."""
    local = state.now
    move = local.next
    if move.unary is op:
        values = local.values
        if values[move.a] is a:
            local.next = move.next
            node = Node()
            node.move = move
            node.recording = local.recording
            node.aval = move.aval
            node.data = None
            values.append(node)
            tensor = _new(tensor_class)
            tensor._node = node
            local.handles.append(tensor)
            return tensor
    return unlike_one(local, op, a)


def record2(op: Op, a: Node, b: Node) -> Any:
    """Records an operation without parameters on two operands."""
    local = state.now
    move = local.next
    if move.binary is op:
        values = local.values
        if values[move.a] is a and values[move.b] is b:
            local.next = move.next
            node = Node()
            node.move = move
            node.recording = local.recording
            node.aval = move.aval
            node.data = None
            values.append(node)
            tensor = _new(tensor_class)
            tensor._node = node
            local.handles.append(tensor)
            return tensor
    return unlike_two(local, op, a, b)


def record(
    op: Op, inputs: tuple[Node, ...], params: tuple[Any, ...] = (), device: Any = None
) -> Any:
    """Records any operation; `device` matters only where there are no inputs."""
    local = state.now
    move = local.next
    if move.parametric is op:
        if len(inputs) == 1 and local.values[move.a] is inputs[0] and move.params == params:
            local.next = move.next
            return result(local, move)
    elif move.many is op and move.take(local.values) == inputs and move.params == params:
        local.next = move.next
        return result(local, move)
    return _general(local, op, params, inputs, device)


def record_known(instr: Instr, inputs: tuple[Node, ...]) -> Any:
    """Records an operation whose instruction was looked up before."""
    local = state.now
    move = local.next
    if move.instr is instr and not move.unique:
        if len(inputs) == 1 and local.values[move.a] is inputs[0]:
            local.next = move.next
            return result(local, move)
        if local.recording.agrees(inputs, move.codes):
            return entered(local, move)
    return _recorded(local, instr, inputs, local.recording.codes(inputs), False)


def record_unique(op: Op, inputs: tuple[Node]) -> Any:
    """Records an operation on one operand whose result is never merged with an equal one."""
    local = state.now
    move = local.next
    if move.op is op and move.unique and local.recording.takes(inputs[0], move.codes[0]):
        return entered(local, move)
    instr = instruction(op, inputs)
    return _recorded(local, instr, inputs, local.recording.codes(inputs), True)


def instruction(
    op: Op, inputs: tuple[Node, ...], params: tuple[Any, ...] = (), device: Any = None
) -> Instr:
    """The interned instruction of an operation on these inputs."""
    avals = tuple([node.aval for node in inputs])
    key = (params, avals) if inputs else (params, device)
    return op.table.get(key) or infer(op, params, avals, key, device)


def unlike_one(local: Recorder, op: Op, a: Node) -> Any:
    """`record1` where an operation does not follow at first sight."""
    move = local.next
    if move.merged and move.op is op and not (move.params or move.fresh):
        if local.values[move.codes[0]] is a:
            local.next = move.next
            return result(local, move)
    elif move is local.end:
        instr = op.table.get(((), (a.aval,)))
        place = local.recording.place(a)
        if instr is not None and place is not None:
            codes = (place,)
            return extended(local, instr, codes, codes, False, _here(3), None)
    return _general(local, op, (), (a,), None)


def unlike_two(local: Recorder, op: Op, a: Node, b: Node) -> Any:
    """`record2` where an operation does not follow at first sight."""
    if local.next is local.end:
        instr = op.table.get(((), (a.aval, b.aval)))
        place, other = local.recording.place(a), local.recording.place(b)
        if instr is not None and place is not None and other is not None:
            codes = (place, other)
            return extended(local, instr, codes, codes, False, _here(3), None)
    return _general(local, op, (), (a, b), None)


def _general(local: Recorder, op: Op, params: Any, inputs: tuple[Node, ...], device: Any) -> Any:
    """Records what does not follow at first sight: operands new to the trace, or another operation."""
    move, recording = local.next, local.recording
    codes = None
    if move.op is op and move.params == params and not move.unique:
        if len(inputs) == 1 == len(move.codes):
            agrees = recording.takes(inputs[0], move.codes[0])
        elif inputs:
            agrees = recording.agrees(inputs, move.codes)
        else:
            agrees = move.aval.device is device
        if agrees:
            return entered(local, move)
        codes = recording.codes(inputs)
        if codes == move.codes and inputs:
            return _enter(local, move, inputs)
    if codes is None:
        codes = recording.codes(inputs)
    return _recorded(local, instruction(op, inputs, params, device), inputs, codes, False)


def _recorded(
    local: Recorder, instr: Instr, inputs: tuple[Node, ...], codes: tuple[int, ...], unique: bool
) -> Any:
    move = local.next
    if move is not local.end:
        if move.instr is instr and move.codes == codes and move.unique is unique:
            return _enter(local, move, inputs)
        known = move.parent.child((instr, codes, unique))
        if known is not None:
            moves.predict(move.parent, known)
            return _enter(local, known, inputs)
        local.leave_tree()
    operands = local.recording.enter(inputs, codes)
    return extended(local, instr, codes, operands, unique, _here(4), None)


def extended(
    local: Recorder, instr: Instr, codes: Any, operands: Any, unique: bool, src: Any, kind: Any
) -> Any:
    """Records an operation anew; its operands have their places, and no trace is followed."""
    last = local.end.parent
    move = Move()
    move.parent = last
    move.instr = instr
    move.codes = codes
    move.operands = operands
    move.unique = unique
    move.aval = instr.aval
    move.src = src
    move.kind = kind
    move.cuts = move.blocks = move.round = None
    move.depth = last.depth + 1
    place = len(local.values)
    slot = place if unique else local.equal.setdefault((instr, operands), place)
    move.slot = slot
    move.merged = slot != place
    move.total = last.total
    if not move.merged:
        recipe = instr.op.recipe
        move.total += 1 if recipe is None else len(recipe(instr).steps)
    local.end.parent = move
    tensor = result(local, move)
    if move.total > local.limit or local.recording.held_bytes > local.recording.limit_bytes:
        _look_at_limits(local, move)
    elif move.depth == local.stop:
        _look_at_round(local, move)
    return tensor


def _enter(local: Recorder, move: Move, inputs: tuple[Node, ...]) -> Any:
    """Follows a move whose codes agree with those of the operands."""
    if move.fresh:
        local.recording.follow(inputs, move.codes)
    return entered(local, move)


def entered(local: Recorder, move: Move) -> Any:
    """Follows a move whose operands have their places."""
    recording = local.recording
    local.next = move.next
    tensor = result(local, move)
    if move.total > local.limit or recording.held_bytes > recording.limit_bytes:
        _look_at_limits(local, move)
    elif move.round is not None:
        hooks.round_ended(local, move.round)
    return tensor


def result(local: Recorder, move: Move) -> Any:
    """The handle of a move's result; operands are entered, the cursor is moved."""
    if move.merged:
        node = local.values[move.slot]
    else:
        node = Node()
        node.move = move
        node.recording = local.recording
        node.aval = move.aval
        node.data = None
        local.values.append(node)
    tensor = _new(tensor_class)
    tensor._node = node
    local.handles.append(tensor)
    return tensor


def _look_at_limits(local: Recorder, move: Move) -> None:
    """Cuts a trace that is too long, and lets go of what it holds for nothing; after a move was made."""
    recording = local.recording
    if move.total > local.limit and move.cuttable:
        local.publish()
        if local.next is not local.end:
            moves.keep_slow(move)
        hooks.limit_reached(local)
    elif recording.held_bytes > recording.limit_bytes:
        _look_for_waste(local)


def _look_at_round(local: Recorder, move: Move) -> None:
    """Cuts a trace where a round of a loop ends that was found before."""
    local.stop = 0
    if move.cuttable and comes_as(move, local.expected):
        local.publish()
        if local.next is not local.end:
            end_round(move, local.following)
        hooks.round_ended(local, local.following)


def end_round(move: Move, following: Any) -> None:
    """Lets traces be cut after a move, which is part of the tree."""
    move.round = following
    moves.keep_slow(move)


def look_at_limit(local: Recorder) -> None:
    """Cuts a trace that is too long, after moves at which it may not be cut."""
    move = local.next.parent
    if move is not None and move.total > local.limit:
        hooks.limit_reached(local)


def _look_for_waste(local: Recorder) -> None:
    """Lets go of large buffers that the recording alone keeps, for results that nobody keeps."""
    recording = local.recording
    used = set(behind(local.live()))
    wasted = sum(node.aval.nbytes for node in recording.slots if node not in used)
    if 2 * wasted > recording.held_bytes:
        local.leave()
    else:
        recording.limit_bytes = 2 * recording.held_bytes


def parts(tensor: Any) -> tuple[Any, ...]:
    """The outputs of a recorded operation that has several, as tensors."""
    node = tensor._node
    return tuple(record(PART, (node,), (k,)) for k in range(len(node.aval.parts)))


def _part_rule(avals: tuple[Aval, ...], params: tuple[Any, ...]) -> tuple[None, Aval]:
    inner = avals[0].parts
    assert inner is not None
    return None, inner[params[0]]


PART: Final = Op("part", lambda xs, k: xs[k], lambda xs, k: xs[k], _part_rule)
"""Takes one output of an operation that has several."""


def hold(node: Node) -> Any:
    """A new tensor around a node; a pending one counts as live."""
    tensor = new_tensor(node)
    if node.data is None:
        note(tensor)
    return tensor


def note(tensor: Any) -> None:
    """Counts a tensor whose node is pending as live."""
    state.now.handles.append(tensor)
