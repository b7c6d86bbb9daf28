"""One recorded operation as part of a trace that may repeat."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from graphopt.lazy.core.node import SCALAR, Instr, Op

MET: Final = 1 << 50
"""Codes of numbers that the trace has met before are minus this, minus their place."""


class End:
    """The end of what is known after a move: a move that agrees with nothing.

    Attributes:
        parent: the move before.
    """

    __slots__ = ("parent",)

    instr = op = params = codes = aval = kind = children = None
    unary = binary = parametric = many = right = left = new_right = new_left = None
    unique = merged = False
    a = b = 0

    def __init__(self, parent: Move) -> None:
        self.parent = parent


class Move:
    """One recorded operation, as part of a trace.

    Codes describe an operand before it is known which value it is: a positive number is the place of
    a value that the trace has met before, a negative one is minus the number of a buffer's aval, or of
    a constant's or a number's instruction. Equal codes along a path mean equal traces.

    Attributes:
        instr: what is computed; None at the root.
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
        many: the same with several operands, and any parameters where `binary` does not say it.
        take: for `many`: values of the trace -> the operands.
        total: operations from the root to this move, those of composites and blocks one by one.
        checked: `total` where the limit of a trace was looked at last.
        cuttable: the trace may be cut here: the result is no tuple, nor taken from one.
        right: the operation, if its operands are a value met before and a floating-point number.
        left: the same with the number first.
        new_right: the operation, if its operands are a buffer new to the trace and such a number.
        new_left: the same with the number first.
        kind: the number's type.
        a: place of the first value, for those above, or its code if it is new to the trace; a place
            where nothing is otherwise.
        b: place of the second.
    """

    __slots__ = (
        "a", "aval", "b", "binary", "blocks", "checked", "children", "codes", "cuts", "cuttable",
        "fresh", "instr", "kind", "left", "many", "merged", "new_left", "new_right", "next", "op",
        "operands", "parametric", "params", "parent", "right", "slot", "slow", "src", "take", "total",
        "unary", "unique",
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
        self.many: Op | None = None
        self.take: Any = None
        self.right: Op | None = None
        self.left: Op | None = None
        self.new_right: Op | None = None
        self.new_left: Op | None = None
        self.kind: Any = None
        self.a = self.b = self.total = self.checked = 0
        self.cuttable = instr is not None and instr.aval.parts is None and instr.op.name != "part"
        self.next: Any = End(self)

    def child(self, key: Any) -> Move | None:
        """The move after this one with an (instruction, codes, uniqueness), if it came before."""
        known: Move = self.next
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
        elif len(met) > 1 and all(met):
            self.take, self.many = itemgetter(*self.codes), op


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
        parent.next = End(parent)
