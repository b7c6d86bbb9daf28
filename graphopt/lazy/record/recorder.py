"""Recording: operands in, tensors with hash-consed nodes out. The hot path of the package."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any, Final

import numpy as np

from graphopt.lazy.core import dtypes, source_lines
from graphopt.lazy.core.dtypes import DType
from graphopt.lazy.core.infer import infer
from graphopt.lazy.core.node import (
    CONST,
    Aval,
    Instr,
    Node,
    Op,
    aval_of,
    leaf,
    next_uid,
    scalar_instr,
)
from graphopt.lazy.errors import ConversionError
from graphopt.lazy.record.tensor_base import TensorBase

_ref: Final = weakref.ref
_new: Final[Any] = object.__new__
_get_frame: Final = sys._getframe
_internal: Final = source_lines._internal


class Recorder:
    """What one thread has recorded and not yet computed.

    Attributes:
        cons: (instruction, input numbers ...) -> weak reference to the pending node.
        live: weak references to tensors that were pending when they were made.
        tapes: active gradient tapes, innermost last; each records what is computed under it.
        limit: recorded nodes that cause an automatic cut.
        step: innermost `lt.step()` that is active, or None.
        weight: operations in recorded blocks since the last cut.
    """

    __slots__ = ("cons", "limit", "live", "step", "tapes", "weight")

    def __init__(self) -> None:
        self.cons: dict[Any, weakref.ref[Node]] = {}
        self.live: list[weakref.ref[TensorBase]] = []
        self.tapes: tuple[Any, ...] = ()
        self.limit = settings.trace_limit
        self.step: Any = None
        self.weight = 0


class _Threads(threading.local):
    """The recorder of the thread that asks: one look-up of thread-local data per operation."""

    def __init__(self) -> None:
        self.now = Recorder()


class Settings:
    """Process-wide settings; `lt.config` changes them.

    Attributes:
        trace_limit: recorded operations that cause an automatic cut, outside of a step.
        step_limit: the same inside of a step.
    """

    trace_limit = 2_000
    step_limit = 20_000


settings: Final = Settings()
state: Final = _Threads()
tensor_class: Any = TensorBase
"""The class of recorded results; `tensor.py` puts its own here."""


class _Hooks:
    """Functions of higher modules that recording calls."""

    limit_reached: Any = None


hooks: Final = _Hooks()


def new_tensor(node: Node) -> Any:
    """A tensor around a node."""
    tensor = _new(tensor_class)
    tensor._node = node
    return tensor


def record1(op: Op, a: Node) -> Any:
    """Records an operation without parameters on one operand."""
    aval = a.aval
    instr = op.table.get(aval) or infer(op, (), (aval,), aval, None)
    key = (instr, a.uid)
    local = state.now
    known = local.cons.get(key)
    if known is not None and (node := known()) is not None:
        return _held(node)
    return _recorded(instr, (a,), key, local)


def record2(op: Op, a: Node, b: Node) -> Any:
    """Records an operation without parameters on two operands."""
    avals = (a.aval, b.aval)
    instr = op.table.get(avals) or infer(op, (), avals, avals, None)
    key = (instr, a.uid, b.uid)
    local = state.now
    known = local.cons.get(key)
    if known is not None and (node := known()) is not None:
        return _held(node)
    return _recorded(instr, (a, b), key, local)


def record(
    op: Op, inputs: tuple[Node, ...], params: tuple[Any, ...] = (), device: Any = None
) -> Any:
    """Records any operation; `device` matters only where there are no inputs."""
    instr = instruction(op, inputs, params, device)
    key = (instr, *[node.uid for node in inputs])
    local = state.now
    known = local.cons.get(key)
    if known is not None and (node := known()) is not None:
        return _held(node)
    return _recorded(instr, inputs, key, local)


def record_known(instr: Instr, inputs: tuple[Node, ...]) -> Any:
    """Records an operation whose instruction was looked up before."""
    key = (instr, *[node.uid for node in inputs])
    local = state.now
    known = local.cons.get(key)
    if known is not None and (node := known()) is not None:
        return _held(node)
    return _recorded(instr, inputs, key, local)


def instruction(
    op: Op, inputs: tuple[Node, ...], params: tuple[Any, ...] = (), device: Any = None
) -> Instr:
    """The interned instruction of an operation on these inputs."""
    avals = tuple([node.aval for node in inputs])
    key = (params, avals) if inputs else (params, device)
    return op.table.get(key) or infer(op, params, avals, key, device)


def _held(node: Node) -> Any:
    tensor = _new(tensor_class)
    tensor._node = node
    state.now.live.append(_ref(tensor))
    return tensor


def _recorded(instr: Instr, inputs: tuple[Node, ...], key: Any, local: Recorder) -> Any:
    node = Node()
    node.uid = next_uid()
    node.instr = instr
    node.inputs = inputs
    node.aval = instr.aval
    node.data = None
    try:
        frame = _get_frame(3)  # the nearest that can be a user's: each record call has a wrapper
        while _internal[frame.f_code.co_filename]:
            frame = frame.f_back  # type: ignore[assignment]
        node.src = (frame.f_code, frame.f_lasti)
    except (KeyError, AttributeError, ValueError):
        node.src = source_lines.here(2)
    cons = local.cons
    cons[key] = _ref(node)
    for tape in local.tapes:
        tape.append((node, instr, inputs))
    tensor = _new(tensor_class)
    tensor._node = node
    local.live.append(_ref(tensor))
    if len(cons) > local.limit:
        hooks.limit_reached(local)
    return tensor


def weigh(operations: int) -> None:
    """Counts operations that were recorded as one node towards the limit of a trace."""
    local = state.now
    local.weight += operations
    if local.weight + len(local.cons) > local.limit:
        hooks.limit_reached(local)


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


_consts: dict[Any, Node] = {}
_INTEGER_LIMITS: Final = {
    d: (int(np.iinfo(d.np).min), int(np.iinfo(d.np).max))
    for d in dtypes.ALL
    if d.kind in ("signed", "unsigned")
}
_STRUCTURAL: Final = frozenset((0, 1))


_quick: Final[dict[Any, Any]] = {}
_quick_consts: Final[dict[Any, Node]] = {}


def scalar_beside(value: Any, aval: Aval) -> Node:
    """The node of a Python number next to an array of this aval: `scalar`, with remembered types."""
    kind = type(value)
    known = _quick.get((kind, aval))
    if known is None:
        dtype = dtypes.scalar_dtype(value, aval.dtype)
        own = aval_of((), dtype, aval.device)
        low, high = _INTEGER_LIMITS.get(dtype, (None, None))
        known = _quick[kind, aval] = (own, scalar_instr(own), dtype, low, high)
    own, instr, dtype, low, high = known
    if value == 0 or value == 1 or kind is bool:
        if kind is float and value == 0:
            return scalar(value, dtype, aval.device)  # the sign matters
        key = (value, kind, own)
        found = _quick_consts.get(key)
        if found is None:
            found = _quick_consts[key] = scalar(value, dtype, aval.device)
        return found
    if low is not None and not low <= value <= high:
        return scalar(value, dtype, aval.device)  # raises
    node = Node()
    node.uid = next_uid()
    node.instr = instr
    node.inputs = ()
    node.aval = own
    node.data = value
    node.src = None
    return node


def scalar(value: Any, dtype: DType, device: Any, structural: bool = False) -> Node:
    """A node for a Python number.

    Zero, one and booleans are part of the structure (a graph that multiplies by 1 is another
    graph); any other number is a parameter, so that changing it compiles nothing. Each occurrence is
    a parameter of its own: whether two numbers happen to be equal never shapes a graph.

    Args:
        value: bool, int, float or complex.
        dtype: what it becomes.
        device: of the array it meets.
        structural: make it a constant whatever it is.

    Raises:
        ConversionError: an integer that the dtype cannot hold.
    """
    kind = dtype.kind
    if kind == "float":
        value = float(value)
    elif kind == "complex":
        value = complex(value)
    elif kind == "bool":
        value = bool(value)
    else:
        value = int(value)
        low, high = _INTEGER_LIMITS[dtype]
        if not low <= value <= high:
            raise ConversionError(
                what=f"{value} does not fit into {dtype}",
                where=source_lines.line_of(source_lines.here()),
                fix="Use a wider dtype.",
            )
    aval = aval_of((), dtype, device)
    if structural or value in _STRUCTURAL or kind == "bool":
        text = repr(value)  # tells 0.0 from -0.0
        if structural or text[0] != "-":
            return _const(value, text, aval)
    node = Node()
    node.uid = next_uid()
    node.instr = scalar_instr(aval)
    node.inputs = ()
    node.aval = aval
    node.data = value
    node.src = None
    return node


def _const(value: Any, text: str, aval: Aval) -> Node:
    key = (text, aval.id)
    found = _consts.get(key)
    if found is None:
        node = leaf(value, aval)
        node.instr = CONST.table.setdefault(key, Instr(CONST, (value,), (), aval, None))
        found = _consts.setdefault(key, node)
    return found


def new_tensor_like(node: Node) -> Any:
    """A tensor around a node that may be pending: it counts as live."""
    return _held(node) if node.data is None else new_tensor(node)
