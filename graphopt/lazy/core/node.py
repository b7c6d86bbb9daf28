"""The recorded graph: abstract values, operations, instructions and nodes.

Everything that describes (avals, instructions) is interned and carries a small integer, so that a
graph's structure is a tuple of integers and equal structures are found by one dictionary look-up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from operator import attrgetter
from types import CodeType
from typing import Any, Final

from graphopt.lazy.core import dtypes
from graphopt.lazy.core.dtypes import DType

_next_id: Final = itertools.count(1).__next__
_by_uid: Final = attrgetter("uid")

PLACES: Final = 40
"""Bits of a node's number that are its place in its recording; those above are the recording's."""


class Aval:
    """An abstract value: shape, dtype and device; interned, so identity is equality.

    Attributes:
        id: its number in structural keys (shared with instructions, positive).
        shape: axis lengths.
        dtype: element type.
        device: the jax device that holds such values.
        size: number of elements.
        nbytes: size in bytes.
        parts: for the value of an operation with several outputs, their avals; else None.
    """

    __slots__ = ("device", "dtype", "id", "nbytes", "parts", "shape", "size")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DType,
        device: Any,
        parts: tuple[Aval, ...] | None = None,
    ) -> None:
        self.id = _next_id()
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.size = math.prod(shape)
        self.parts = parts
        self.nbytes = self.size * dtype.itemsize

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        if self.parts is not None:
            return "(" + ", ".join(map(repr, self.parts)) + ")"
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


_avals: dict[Any, Aval] = {}


def aval_of(shape: tuple[int, ...], dtype: DType, device: Any) -> Aval:
    """The one aval of this shape, dtype and device."""
    key = (shape, dtype.name, device)
    found = _avals.get(key)
    if found is None:
        found = _avals.setdefault(key, Aval(shape, dtype, device))
    return found


def tuple_aval(parts: tuple[Aval, ...], device: Any) -> Aval:
    """The one aval of a tuple of these values."""
    key = tuple(part.id for part in parts)
    found = _avals.get(key)
    if found is None:
        found = _avals.setdefault(key, Aval((), dtypes.bool_, device, parts))
    return found


Rule = Callable[[tuple[Aval, ...], tuple[Any, ...]], tuple[Any, Aval]]
"""(input avals, parameters) -> (dtype that inputs are cast to or None, output aval)."""


class Op:
    """An operation: how it computes, on jax values and on NumPy arrays.

    Attributes:
        name: for messages, keys and displays.
        jax: ``(*arrays, *params)`` -> array or tuple of arrays; traceable by jax.
        np: the same on NumPy arrays; None if only jax can.
        rule: output shape and dtype; None lets jax infer them.
        table: (params, input avals ...) -> Instr; what was inferred once is looked up.
        has_index: it may meet an index out of range, which is checked at run time.
        recipe: for one that stands for several operations: its instruction -> what they are (a
            `record.blocks.Block`); plans contain those in its place. None for all others.
    """

    __slots__ = ("has_index", "jax", "name", "np", "recipe", "rule", "table")

    def __init__(
        self,
        name: str,
        jax: Callable[..., Any],
        np: Callable[..., Any] | None = None,
        rule: Rule | None = None,
        has_index: bool = False,
    ) -> None:
        self.name = name
        self.jax = jax
        self.np = np
        self.rule = rule
        self.table: dict[Any, Instr] = {}
        self.has_index = has_index
        self.recipe: Callable[[Instr], Any] | None = None

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Instr:
    """An operation applied to inputs of certain avals: all but the values.

    Attributes:
        id: its number in structural keys.
        op: the operation.
        params: hashable parameters.
        in_avals: avals of the inputs.
        aval: aval of the result.
        cast: NumPy dtype that inputs are cast to before; None for no cast.
        casts: whether any input needs that cast.
        jitted: the operation alone, compiled for these avals; None until it was needed.
    """

    __slots__ = ("aval", "cast", "casts", "id", "in_avals", "jitted", "op", "params")

    def __init__(
        self,
        op: Op,
        params: tuple[Any, ...],
        in_avals: tuple[Aval, ...],
        aval: Aval,
        cast: DType | None,
    ) -> None:
        self.id = _next_id()
        self.op = op
        self.params = params
        self.in_avals = in_avals
        self.aval = aval
        self.cast = None if cast is None else cast.np
        self.casts = cast is not None and any(a.dtype is not cast for a in in_avals)
        self.jitted: Any = None

    def run_jax(self, *arrays: Any) -> Any:
        """Computes on jax values (arrays or tracers)."""
        if self.casts:
            arrays = tuple(a.astype(self.cast) for a in arrays)
        return self.op.jax(*arrays, *self.params)

    def run_numpy(self, *arrays: Any) -> Any:
        """Computes on NumPy arrays; only for operations that have a NumPy form."""
        if self.casts:
            arrays = tuple(a.astype(self.cast) for a in arrays)
        return self.op.np(*arrays, *self.params)  # type: ignore[misc]

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self.in_avals))
        params = f" {self.params}" if self.params else ""
        return f"{self.op.name}({inner}){params} -> {self.aval!r}"


class Node:
    """One recorded value.

    A node is *pending* (`data` is None and `instr` says how it is computed), a *leaf* (`data` holds a
    buffer and `instr` is None), a *scalar parameter* or a *constant* (`instr.op` is `SCALAR` or `CONST`
    and `data` is a Python number). A pending node turns into a leaf when it is computed; it never
    changes otherwise.

    Of a pending node, recording sets `aval`, `data`, `move` and `recording` alone; what these two say
    (`uid`, `instr`, `inputs`, `src`) is filled in when somebody asks for it.

    Attributes:
        uid: recording number of a pending node; inputs have smaller ones.
        instr: how it is computed.
        inputs: nodes it is computed from; empty for leaves.
        aval: shape, dtype, device.
        data: jax array, NumPy array, Python number, or None.
        src: (code object, instruction offset) of the user's line that recorded it, or None.
        check: outcome of the index checks that a leaf depends on; None if there are none.
        own: `data` is a buffer that a compiled graph made and that was never handed out; None if others
            have the array itself, and may give its buffer away or write to it.
        move: what was recorded, as part of a trace that may repeat (`record.traces.Move`).
        recording: where the operands are found; None for nodes that are not pending.
    """

    __slots__ = (
        "aval", "check", "data", "inputs", "instr", "move", "own", "recording", "src", "uid",
    )  # fmt: skip

    uid: int
    instr: Instr | None
    inputs: tuple[Node, ...]
    aval: Aval
    data: Any
    src: tuple[CodeType, int] | None
    check: Any
    own: bool | None
    move: Any
    recording: Any

    @property
    def pending(self) -> bool:
        """Not computed yet."""
        return self.data is None

    def __getattr__(self, name: str) -> Any:
        """Fills in what recording left out; Python asks for unset slots only."""
        if name in ("move", "recording"):
            raise AttributeError(name)
        recording = self.recording
        if recording is None and name != "check":  # another thread filled it in meanwhile
            return object.__getattribute__(self, name)
        if name == "inputs":
            self.inputs = recording.operands(self.move)
        elif name == "instr":
            self.instr = self.move.instr
        elif name == "uid":
            self.uid = recording.base + self.move.slot
        elif name == "src":
            self.src = self.move.src
        elif name == "check":
            self.check = None
        elif name == "own":
            self.own = False
        else:
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def detach(self) -> None:
        """Fills in everything, so that the node needs its recording no more."""
        if self.recording is not None:
            _ = self.uid, self.instr, self.inputs, self.src
            self.recording = None


def leaf(data: Any, aval: Aval) -> Node:
    """A node that holds a buffer."""
    return value_node(data, aval, None)


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """Pending nodes, inputs first."""
    found = sorted(nodes, key=_by_uid)
    if not found or found[0].uid >> PLACES == found[-1].uid >> PLACES:
        return found
    position = {node: k for k, node in enumerate(found)}  # threads: numbers need not be in order
    if all(position.get(x, -1) < k for node, k in position.items() for x in node.inputs):
        return found
    done: dict[Node, None] = {}
    for root in found:
        todo = [root]
        while todo:
            node = todo[-1]
            missing = [x for x in node.inputs if x in position and x not in done]
            todo.extend(missing)
            if not missing:
                done[node] = None
                todo.pop()
    return list(done)


def value_node(data: Any, aval: Aval, instr: Instr | None) -> Node:
    """A node that holds a value: a leaf, or a scalar parameter or constant with its instruction."""
    node = Node()
    node.uid = 0
    node.instr = instr
    node.inputs = ()
    node.aval = aval
    node.data = data
    node.src = None
    node.check = None
    node.own = False
    node.recording = None
    return node


SCALAR: Final = Op("scalar", lambda: None)
CONST: Final = Op("const", lambda: None)


def scalar_instr(aval: Aval) -> Instr:
    """The instruction of a scalar parameter."""
    found = SCALAR.table.get(aval)
    if found is None:
        found = SCALAR.table.setdefault(aval, Instr(SCALAR, (), (), aval, None))
    return found
