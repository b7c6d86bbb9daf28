"""Recording: operands in, tensors out. The hot path of the package.

What is recorded is compared with what came next the last time (`traces`). Where it agrees, a result is
a node and a handle; nothing is inferred or looked up.
"""

from __future__ import annotations

import sys
import weakref
from threading import local as _thread_local
from typing import Any, Final

from graphopt.lazy.core import source_lines
from graphopt.lazy.core.infer import infer
from graphopt.lazy.core.node import Aval, Instr, Node, Op
from graphopt.lazy.record import moves, traces
from graphopt.lazy.record.moves import Move
from graphopt.lazy.record.numbers import scalar, scalar_beside
from graphopt.lazy.record.tensor_base import TensorBase
from graphopt.lazy.record.traces import Recording

__all__ = ["scalar", "scalar_beside"]

_ref: Final = weakref.ref
_new: Final[Any] = object.__new__
_references: Final[Any] = sys.getrefcount


class Settings:
    """Process-wide settings; `lt.config` changes them.

    Attributes:
        trace_limit: recorded operations that cause an automatic cut, outside of a step.
        step_limit: the same inside of a step.
        replay: recordings follow what was recorded before.
    """

    trace_limit = 2_000
    step_limit = 20_000
    replay = True


settings: Final = Settings()


class Recorder:
    """What one thread has recorded and not yet computed.

    Attributes:
        next: the move that is expected, or the end of what is known; its parent is the last one.
        recording: values since the last cut.
        values: those of `recording`.
        numbers: those of `recording`.
        handles: those of `recording`.
        left: weak references to tensors that were pending at the last cut and stayed so.
        tapes: active gradient tapes, innermost last; each covers what is recorded under it.
        limit: recorded values that cause an automatic cut.
        step: innermost `lt.step()` that is active, or None.
        apart: what is recorded is no part of the tree of traces, and is never cut.
    """

    __slots__ = (
        "apart", "handles", "left", "limit", "next", "numbers", "recording", "step", "tapes",
        "values",
    )  # fmt: skip

    def __init__(self, apart: bool = False) -> None:
        self.left: list[weakref.ref[TensorBase]] = []
        self.tapes: tuple[Any, ...] = ()
        self.apart = apart
        self.limit = sys.maxsize if apart else settings.trace_limit
        self.step: Any = None
        self.restart()

    def restart(self) -> None:
        """Begins a recording at the root of the tree; what was recorded stays with its nodes."""
        for tape in self.tapes:
            tape.pause(self)
        if traces.tree.moves > traces.MAX_MOVES:
            traces.tree.clear()
        self.recording = Recording()
        self.values = self.recording.values
        self.numbers = self.recording.numbers
        self.handles = self.recording.handles
        known = settings.replay and not self.apart
        self.next: Move = traces.tree.root.next if known else traces.Tree().root.next
        for tape in self.tapes:
            tape.resume(self)

    def live(self) -> list[Node]:
        """Nodes of tensors that somebody holds and that are pending, each once, oldest first."""
        nodes: dict[Node, None] = {}
        for reference in self.left:
            tensor = reference()
            if tensor is not None and tensor._node.data is None:
                nodes[tensor._node] = None
        for tensor in held_elsewhere(self.handles):
            if tensor._node.data is None:
                nodes[tensor._node] = None
        return list(nodes)

    def leave(self, failed: Any = ()) -> None:
        """Ends the recording after a cut; pending tensors stay known as live.

        Args:
            failed: nodes that could not be computed: they are forgotten.
        """
        kept = [r for r in self.left if _pending(r(), failed)]
        kept += [_ref(t) for t in held_elsewhere(self.handles) if _pending(t, failed)]
        if kept:
            for node in behind(self.live()):
                node.detach()
        self.restart()
        self.left = kept


def _pending(tensor: Any, failed: Any) -> bool:
    return tensor is not None and tensor._node.data is None and tensor._node not in failed


def held_elsewhere(handles: list[Any]) -> list[Any]:
    """The tensors of a list that something else refers to, too."""
    unused = _UNUSED
    return [tensor for tensor in handles if _references(tensor) > unused]


_UNUSED = 0
_UNUSED = max(
    count for handles in [[TensorBase()]] for count in [_references(tensor) for tensor in handles]
)
"""References that a tensor has while `held_elsewhere` looks at it and nobody holds it."""


class _Threads(_thread_local):
    """The recorder of the thread that asks: one look-up of thread-local data per operation."""

    def __init__(self) -> None:
        self.now = Recorder()


state: Final = _Threads()
tensor_class: Any = TensorBase
"""The class of recorded results; `tensor.py` puts its own here."""


class _Hooks:
    """Functions of higher modules that recording calls."""

    limit_reached: Any = None


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
    return _general(local, op, (), (a,), None)


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
    return _general(local, op, (), (a, b), None)


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


def _general(local: Recorder, op: Op, params: Any, inputs: tuple[Node, ...], device: Any) -> Any:
    """Records what does not follow at first sight: operands new to the trace, or another operation."""
    move = local.next
    codes = None
    if move.op is op and move.params == params and not move.unique:
        if len(inputs) == 1 == len(move.codes):
            agrees = local.recording.takes(inputs[0], move.codes[0])
        elif inputs:
            agrees = local.recording.agrees(inputs, move.codes)
        else:
            agrees = move.aval.device is device
        if agrees:
            return entered(local, move)
        codes = local.recording.codes(inputs)
        if codes == move.codes and inputs:
            return _enter(local, move, inputs)
    if codes is None:
        codes = local.recording.codes(inputs)
    return _recorded(local, instruction(op, inputs, params, device), inputs, codes, False)


def _recorded(
    local: Recorder, instr: Instr, inputs: tuple[Node, ...], codes: tuple[int, ...], unique: bool
) -> Any:
    move = local.next
    if move.instr is instr and move.codes == codes and move.unique is unique:
        return _enter(local, move, inputs)
    parent: Any = move.parent
    known = parent.child((instr, codes, unique))
    if known is not None:
        moves.predict(parent, known)
        return _enter(local, known, inputs)
    recording = local.recording
    operands = recording.enter(inputs, codes)
    move = traces.new_move(local, instr, codes, operands, unique)
    move.src = source_lines.here(4)
    move = traces.link(parent, move)
    if not local.apart:
        traces.tree.moves += 1
    recording.remember(move)
    local.next = move.next
    return _limited(local, move)


def _enter(local: Recorder, move: Move, inputs: tuple[Node, ...]) -> Any:
    """Follows a move whose codes agree with those of the operands."""
    if move.fresh:
        local.recording.follow(inputs, move.codes)
    return entered(local, move)


def entered(local: Recorder, move: Move) -> Any:
    """Follows a move whose operands have their places."""
    recording = local.recording
    local.next = move.next
    if move.total > local.limit or recording.held_bytes > recording.limit_bytes:
        return _limited(local, move)
    return result(local, move)


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


def _limited(local: Recorder, move: Move) -> Any:
    tensor = result(local, move)
    recording = local.recording
    if move.total > local.limit and move.cuttable:
        moves.keep_slow(move)
        hooks.limit_reached(local)
    elif recording.held_bytes > recording.limit_bytes:
        _look_for_waste(local)
    return tensor


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


def behind(roots: list[Node]) -> list[Node]:
    """Some nodes and all that they are computed from."""
    todo, seen = list(roots), set(roots)
    for node in todo:
        for each in node.inputs:
            if each not in seen:
                seen.add(each)
                todo.append(each)
    return todo


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
