"""Traces that repeat: what programs recorded before, as a tree that later recordings follow.

A trace is what was recorded between two cuts. Traces with a common beginning share it: each node of the
tree is a `Move`, one recorded operation with its operands as places in the trace. A `Recording` holds
the values of one run along a path of the tree.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from graphopt.lazy.core.node import CONST, PLACES, SCALAR, Instr, Node, Op, value_node

MAX_MOVES: Final = 50_000
"""Moves kept; a tree that grows beyond that is forgotten."""

CHECK_EVERY: Final = 128
"""Predictions end after this many values, so that limits are looked at."""

MET: Final = 1 << 50
"""Codes of numbers that the trace has met before are minus this, minus their place."""

_base: Final = itertools.count(1).__next__


class Move:
    """One recorded operation, as part of a trace.

    Codes describe an operand before it is known which value it is: a positive number is the place of
    a value that the trace has met before, a negative one is minus the number of a buffer's aval, or of
    a constant's or a number's instruction. Equal codes along a path mean equal traces.

    Attributes:
        instr: what is computed; None for the end of what is known.
        op: its operation.
        params: its parameters.
        codes: one per operand.
        unique: never merged with an equal operation.
        operands: per operand, the place of its value, or minus one minus the place of a number.
        slot: place of the result.
        slow: never predicted.
        merged: the result is that of an equal operation before.
        aval: of the result.
        src: the user's line that recorded it the first time.
        parent: the move before; None at the root.
        next: the move that came last after this one, or the end of what is known.
        children: further moves that came after this one; None if there is one at most.
        fresh: some operand is new to the trace, or a number.
        cuts: what is known of cuts after this move, by what was asked for.
        blocks: backward passes known at this move.
        unary: the operation, if it has one operand that is a value met before, and no parameters.
        binary: the same with two operands.
        parametric: the same with one operand and parameters.
        right: the operation, if its operands are a value met before and a floating-point number.
        left: the same with the number first.
        kind: the number's type.
        a: place of the first value, for the five above; a place where nothing is otherwise.
        b: place of the second.
    """

    __slots__ = (
        "a", "aval", "b", "binary", "blocks", "children", "codes", "cuts", "fresh", "instr", "kind",
        "left", "merged", "next", "op", "operands", "parametric", "params", "parent", "right", "slot",
        "slow", "src", "unary", "unique",
    )  # fmt: skip

    def __init__(self, parent: Move | None, instr: Instr | None, codes: Any, unique: bool) -> None:
        self.parent = parent
        self.instr = instr
        self.op: Op | None = None if instr is None else instr.op
        self.params: Any = None if instr is None else instr.params
        self.codes: Any = codes
        self.unique = unique
        self.fresh = bool(codes) and min(codes) < 0
        self.operands: tuple[int, ...] = ()
        self.slot = 0
        self.slow = False
        self.merged = False
        self.aval: Any = None if instr is None else instr.aval
        self.src: Any = None
        self.children: dict[Any, Move] | None = None
        self.cuts: dict[Any, Any] | None = None
        self.blocks: dict[Any, Any] | None = None
        self.unary: Op | None = None
        self.binary: Op | None = None
        self.parametric: Op | None = None
        self.right: Op | None = None
        self.left: Op | None = None
        self.kind: Any = None
        self.a = self.b = 0
        if instr is None:
            self.next: Move = self
        else:
            self.next = Move(self, None, None, False)

    def child(self, key: Any) -> Move | None:
        """The move after this one with an (instruction, codes, uniqueness), if it came before."""
        known = self.next
        if known.instr is key[0] and known.codes == key[1] and known.unique == key[2]:
            return known
        return None if self.children is None else self.children.get(key)

    def prepare(self) -> None:
        """Sets what the quick comparisons of following look at; operands are known."""
        if self.merged or self.unique:
            return
        op, met = self.op, [code > 0 for code in self.codes]
        if met == [True]:
            self.a = self.codes[0]
            if self.params:
                self.parametric = op
            else:
                self.unary = op
        elif met == [True, True] and not self.params:
            self.a, self.b = self.codes
            self.binary = op


class Tree:
    """All traces of a process.

    Attributes:
        root: before the first move.
        moves: how many there are.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets all traces; recordings under way go on along the old ones."""
        self.root = Move(None, None, None, False)
        self.root.next = Move(self.root, None, None, False)
        self.moves = 0


tree: Final = Tree()


class Recording:
    """The values of one trace while it is recorded.

    Attributes:
        values: nodes by place: buffers and constants at their first use, and results; the first place
            is empty.
        slots: places of the buffers and constants.
        numbers: values of the scalar parameters, in order of use.
        number_nodes: their nodes, where there are any.
        number_places: the reverse.
        handles: tensors that were made for results.
        base: added to a place, gives a node's number; grows from recording to recording.
        foreign: some operand is pending in another recording.
        weight: operations in recorded blocks.
        held_bytes: bytes of the buffers.
        limit_bytes: bytes at which to look whether buffers are kept for nothing.
    """

    __slots__ = (
        "base", "equal", "foreign", "handles", "held_bytes", "limit_bytes", "number_nodes",
        "number_places", "numbers", "slots", "values", "weight",
    )  # fmt: skip

    def __init__(self) -> None:
        self.values: list[Any] = [None]
        self.slots: dict[Node, int] = {}
        self.numbers: list[Any] = []
        self.number_nodes: dict[int, Node] = {}
        self.number_places: dict[Node, int] = {}
        self.handles: list[Any] = []
        self.base = _base() << PLACES
        self.foreign = False
        self.weight = 0
        self.held_bytes = 0
        self.limit_bytes = LIMIT_BYTES
        self.equal: dict[Any, Move] | None = None

    def codes(self, inputs: tuple[Node, ...]) -> tuple[int, ...]:
        """How operands stand in the trace; see `Move`. Changes nothing."""
        found = []
        fresh: dict[Node, int] = {}  # new to the trace -> code of its further uses
        values = numbers = 0
        for node in inputs:
            if node.recording is self:
                found.append(node.move.slot)
                continue
            code = self.slots.get(node) or fresh.get(node)
            if code is None:
                instr = node.instr
                if node.data is None or instr is None or instr.op is CONST:
                    fresh[node] = len(self.values) + values
                    values += 1
                    code = -(instr or node.aval).id if node.data is not None else -node.aval.id
                elif (place := self.number_places.get(node)) is not None:
                    code = -MET - place
                else:
                    fresh[node] = -MET - len(self.numbers) - numbers
                    numbers += 1
                    code = -instr.id
            found.append(code)
        return tuple(found)

    def enter(self, inputs: tuple[Node, ...], codes: tuple[int, ...]) -> tuple[int, ...]:
        """Gives new values and numbers their places; returns operands as in `Move.operands`."""
        found: list[int] = []
        for node, code in zip(inputs, codes, strict=True):
            if code > 0:
                found.append(code)
                continue
            if code <= -MET:
                found.append(-1 - (-code - MET))
                continue
            instr = node.instr
            if node.data is not None and instr is not None and instr.op is not CONST:
                self._keep_number(len(self.numbers), node)
                found.append(-1 - len(self.numbers))
                self.numbers.append(node.data)
                continue
            found.append(len(self.values))
            self.slots[node] = len(self.values)
            self.values.append(node)
            self.held_bytes += node.aval.nbytes
            if node.data is None:
                self.foreign = True
        return tuple(found)

    def follow(self, inputs: tuple[Node, ...], codes: tuple[int, ...]) -> None:
        """`enter` for operands whose places are known."""
        for node, code in zip(inputs, codes, strict=True):
            if code > 0 or code <= -MET:
                continue
            if node.instr is None or node.data is None or node.instr.op is CONST:
                values = self.values
                self.slots[node] = len(values)
                values.append(node)
                self.held_bytes += node.aval.nbytes
                if node.data is None:
                    self.foreign = True
            else:
                self._keep_number(len(self.numbers), node)
                self.numbers.append(node.data)

    def operands(self, move: Move) -> tuple[Node, ...]:
        """The nodes of a move's operands."""
        values = self.values
        return tuple([
            values[x] if x >= 0 else self.number(-1 - x, move)
            for x in move.operands
        ])  # fmt: skip

    def number(self, place: int, move: Move) -> Node:
        """The node of a number that a move uses."""
        node = self.number_nodes.get(place)
        if node is None:
            node = self.number_of(place, number_instr(move, place))
        return node

    def number_of(self, place: int, instr: Instr) -> Node:
        """The node of a number, given its instruction."""
        node = self.number_nodes.get(place)
        if node is None:
            node = value_node(self.numbers[place], instr.aval, instr)
            self._keep_number(place, node)
        return node

    def _keep_number(self, place: int, node: Node) -> None:
        self.number_nodes[place] = node
        self.number_places[node] = place

    def place(self, node: Node) -> int | None:
        """The place of a value in this trace; None if the trace has not met it."""
        return node.move.slot if node.recording is self else self.slots.get(node)

    def find_equal(self, key: Any, last: Move) -> Move | None:
        """An operation of this trace that is equal to (instruction, operands)."""
        if self.equal is None:
            self.equal = {}
            for move in path(last):
                self.remember(move)
        return self.equal.get(key)

    def remember(self, move: Move) -> None:
        """Lets later operations of this trace be merged with this one."""
        if self.equal is not None and not (move.unique or move.merged):
            self.equal.setdefault((move.instr, move.operands), move)


LIMIT_BYTES: Final = 64 << 20
"""Buffers that a recording may hold before it is looked at whether anybody else holds them."""


def number_instr(move: Move, place: int) -> Instr:
    """The instruction of a number that a move uses."""
    position = move.operands.index(-1 - place)
    assert move.instr is not None
    return SCALAR.table[move.instr.in_avals[position]]


def path(last: Move) -> list[Move]:
    """The moves from the root to this one."""
    found = []
    move: Move | None = last
    while move is not None and move.instr is not None:
        found.append(move)
        move = move.parent
    return found[::-1]


def new_move(local: Any, instr: Instr, codes: tuple[int, ...], operands: Any, unique: bool) -> Move:
    """Adds a move after the last one of a recording; `operands` have their places already."""
    recording: Recording = local.recording
    parent: Move = local.next.parent
    move = Move(parent, instr, codes, unique)
    move.operands = operands
    equal = None if unique else recording.find_equal((instr, operands), parent)
    if equal is not None:
        move.merged, move.slot = True, equal.slot
    else:
        move.slot = len(recording.values)
        move.slow = move.slot % CHECK_EVERY == 0
    move.prepare()
    return move


def link(parent: Move, move: Move) -> Move:
    """Puts a move after another one; returns the one that is there, if another thread was faster."""
    key = (move.instr, move.codes, move.unique)
    before = parent.next
    if before.instr is not None and parent.children is None:
        parent.children = {(before.instr, before.codes, before.unique): before}
    elif parent.children is None and move.slow:
        parent.children = {}
    if parent.children is not None:
        move = parent.children.setdefault(key, move)
    predict(parent, move)
    tree.moves += 1
    return move


def predict(parent: Move, move: Move) -> None:
    """Expects a move after another one."""
    if not move.slow:
        parent.next = move


def keep_slow(move: Move) -> None:
    """Ends predictions before a move, so that limits are looked at whenever it is made."""
    parent = move.parent
    if move.slow or parent is None:
        return
    move.slow = True
    if parent.children is None:
        parent.children = {(move.instr, move.codes, move.unique): move}
    if parent.next is move:
        parent.next = Move(parent, None, None, False)
