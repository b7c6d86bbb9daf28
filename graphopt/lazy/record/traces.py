"""Traces that repeat: what programs recorded before, as a tree that later recordings follow.

A trace is what was recorded between two cuts. Traces with a common beginning share it: each node of the
tree is a `Move`, one recorded operation with its operands as places in the trace. A `Recording` holds
the values of one run along a path of the tree.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

from graphopt.lazy.core.node import CONST, PLACES, Instr, Node, value_node
from graphopt.lazy.record.moves import MET, End, Move, lead, number_instr, path, predict, root_move

MAX_MOVES: Final = 50_000
"""Moves kept; a tree that grows beyond that is forgotten."""

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
        self.root = root_move()
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
        foreign: some operand is pending in another recording that is not put off.
        put_off: the step that was recorded waits to be run; its results are what others begin with.
        held_bytes: bytes of the buffers.
        limit_bytes: bytes at which to look whether buffers are kept for nothing.
    """

    __slots__ = (
        "base", "foreign", "handles", "held_bytes", "limit_bytes", "number_nodes",
        "number_places", "numbers", "put_off", "slots", "values",
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
        self.put_off = False
        self.held_bytes = 0
        self.limit_bytes = LIMIT_BYTES

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
            if node.data is None and not waits(node):
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
                if node.data is None and not waits(node):
                    self.foreign = True
            else:
                self._keep_number(len(self.numbers), node)
                self.numbers.append(node.data)

    def takes(self, node: Node, code: int) -> bool:
        """`agrees` for one operand."""
        values = self.values
        if code > 0:
            return code < len(values) and values[code] is node
        if node.data is None:
            return node.aval.id == -code and waits(node) and self._entered(node)
        instr = node.instr
        if instr is None:
            if node.aval.id != -code:
                return False
        elif instr.id != -code or instr.op is not CONST:
            return False
        return self._entered(node)

    def agrees(self, inputs: tuple[Node, ...], codes: tuple[int, ...]) -> bool:
        """Whether operands stand in the trace as codes say; gives new ones their places if so.

        The common cases of `codes` and `follow` in one pass: no for some operands that agree.
        """
        if len(inputs) != len(codes):
            return False
        values, count, numbers = self.values, len(self.values), len(self.numbers)
        for node, code in zip(inputs, codes, strict=True):
            if code > 0:
                if code < count and values[code] is node:
                    continue
            elif code <= -MET:
                pass
            elif node.data is None:
                if node.aval.id == -code and waits(node) and self._entered(node):
                    continue
            elif (instr := node.instr) is None:
                if node.aval.id == -code and self._entered(node):
                    continue
            elif instr.id == -code:
                if instr.op is CONST:
                    if self._entered(node):
                        continue
                elif node not in self.number_places:
                    self._keep_number(len(self.numbers), node)
                    self.numbers.append(node.data)
                    continue
            self._take_back(count, numbers)
            return False
        return True

    def _entered(self, node: Node) -> bool:
        """Gives a buffer or constant the next place; not if it has one."""
        values = self.values
        place = len(values)
        if self.slots.setdefault(node, place) != place:
            return False
        values.append(node)
        self.held_bytes += node.aval.nbytes
        return True

    def _take_back(self, values: int, numbers: int) -> None:
        """Leaves only so many values and numbers, of which the others were the last to come."""
        for node in self.values[values:]:
            del self.slots[node]
            self.held_bytes -= node.aval.nbytes
        del self.values[values:]
        for place in range(numbers, len(self.numbers)):
            del self.number_places[self.number_nodes.pop(place)]
        del self.numbers[numbers:]

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


def waits(node: Node) -> bool:
    """Whether a pending node is a result of a step that is put off."""
    recording = node.recording
    return recording is not None and bool(recording.put_off)


LIMIT_BYTES: Final = 64 << 20
"""Buffers that a recording may hold before it is looked at whether anybody else holds them."""


def equal_operations(last: Move) -> dict[Any, int]:
    """(instruction, operands) -> place of the result, of all operations up to a move."""
    found: dict[Any, int] = {}
    for move in path(last):
        if not (move.unique or move.merged):
            found.setdefault((move.instr, move.operands), move.slot)
    return found


def add_to_tree(parent: Move, last: Move) -> Move:
    """Adds moves that were recorded anew to the tree.

    They are linked to each other before the first is linked to the tree, where other threads follow.
    If one of them added an equal move meanwhile, that one stays, and none of these is kept.

    Args:
        parent: the last move that is part of the tree.
        last: the last one that is not; a chain of parents leads back to `parent`.

    Returns:
        The last move that was added.
    """
    chain: list[Move] = []
    each = last
    while each is not parent:
        chain.append(each)
        each = each.parent
    for move in reversed(chain):
        move.prepare()
    if not chain:
        return parent
    last.next = End(last)
    for move, after in zip(chain[1:], chain, strict=False):
        lead(move, after)
    if _link(parent, chain[-1]) is not chain[-1]:
        return parent
    tree.moves += len(chain)
    return last


def _link(parent: Move, move: Move) -> Move:
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
