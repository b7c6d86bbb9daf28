"""Traces that repeat: what programs recorded before, as a tree that later recordings follow.

A trace is what was recorded between two cuts. Traces with a common beginning share it: each node of the
tree is a `Move`, one recorded operation with its operands as places in the trace. A `Recording` holds
the values of one run along a path of the tree.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from graphopt.lazy.core.node import CONST, PLACES, Instr, Node, value_node
from graphopt.lazy.record.moves import MET, Move, number_instr, path, predict

MAX_MOVES: Final = 50_000
"""Moves kept; a tree that grows beyond that is forgotten."""

CHECK_EVERY: Final = 128
"""Predictions end after this many operations, so that limits are looked at."""

_base: Final = itertools.count(1).__next__


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
        held_bytes: bytes of the buffers.
        limit_bytes: bytes at which to look whether buffers are kept for nothing.
    """

    __slots__ = (
        "base", "equal", "foreign", "handles", "held_bytes", "limit_bytes", "number_nodes",
        "number_places", "numbers", "slots", "values",
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
        if not codes or min(codes) > 0:
            return codes
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

    def takes(self, node: Node, code: int) -> bool:
        """`agrees` for one operand."""
        if code > 0:
            return code < len(self.values) and self.values[code] is node
        instr = node.instr
        if node.data is None or node in self.slots:
            return False
        if instr is None:
            if node.aval.id != -code:
                return False
        elif instr.id != -code or instr.op is not CONST:
            return False
        self.slots[node] = len(self.values)
        self.values.append(node)
        self.held_bytes += node.aval.nbytes
        return True

    def agrees(self, inputs: tuple[Node, ...], codes: tuple[int, ...]) -> bool:
        """Whether operands stand in the trace as codes say; gives new ones their places if so.

        The common cases of `codes` and `follow` in one pass: no for some operands that agree.
        """
        if len(inputs) != len(codes):
            return False
        values, slots, count = self.values, self.slots, len(self.values)
        fresh: list[Node] = []
        numbers: list[Node] = []
        for node, code in zip(inputs, codes, strict=True):
            if code > 0:
                if code >= count or values[code] is not node:
                    return False
                continue
            if node.data is None or code <= -MET:
                return False
            instr = node.instr
            if instr is None:
                if node.aval.id != -code or node in slots or node in fresh:
                    return False
                fresh.append(node)
            elif instr.id != -code:
                return False
            elif instr.op is CONST:
                if node in slots or node in fresh:
                    return False
                fresh.append(node)
            elif node in self.number_places or node in numbers:
                return False
            else:
                numbers.append(node)
        for node in fresh:
            slots[node] = len(values)
            values.append(node)
            self.held_bytes += node.aval.nbytes
        for node in numbers:
            self._keep_number(len(self.numbers), node)
            self.numbers.append(node.data)
        return True

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


def new_move(local: Any, instr: Instr, codes: tuple[int, ...], operands: Any, unique: bool) -> Move:
    """Adds a move after the last one of a recording; `operands` have their places already."""
    recording: Recording = local.recording
    parent: Move = local.next.parent
    move = Move(parent, instr, codes, unique)
    move.operands = operands
    equal = None if unique else recording.find_equal((instr, operands), parent)
    move.total, move.checked = parent.total, parent.checked
    if equal is not None:
        move.merged, move.slot = True, equal.slot
    else:
        move.slot = len(recording.values)
        move.total += 1 if instr.op.recipe is None else len(instr.op.recipe(instr).steps)
        if move.cuttable and move.total - move.checked >= CHECK_EVERY:
            move.slow, move.checked = True, move.total
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
    return move
