"""One recorded operation as part of a trace that may repeat."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from graphopt.lazy.core.node import SCALAR, Instr, Op

MET: Final = 1 << 50
"""Codes of numbers that the trace has met before are minus this, minus their place."""

CHECK_EVERY: Final = 512
"""Predictions end after this many operations, so that limits are looked at."""


class Move:
    """One recorded operation, as part of a trace.

    Recording anew sets the attributes from `parent` to `blocks`; `prepare` sets the others when the move
    becomes part of a tree.

    Codes describe an operand before it is known which value it is: a positive number is the place of
    a value that the trace has met before, a negative one is minus the number of a buffer's aval, or of
    a constant's or a number's instruction. Equal codes along a path mean equal traces.

    Attributes:
        parent: the move before; None at the root.
        instr: what is computed; None at the root.
        codes: one per operand.
        operands: per operand, the place of its value, or minus one minus the place of a number.
        unique: never merged with an equal operation.
        merged: the result is that of an equal operation before.
        slot: place of the result.
        aval: of the result.
        src: the user's line that recorded it the first time.
        total: operations from the root to this move, those of composites and blocks one by one.
        kind: for an operation on a value and a number, the number's type.
        cuts: what is known of cuts after this move, by what was asked for.
        blocks: backward passes known at this move.
        depth: moves from the root to this one.
        round: instructions of the round of a loop that follows this move, where one ended; else None.
        op: its operation.
        params: its parameters.
        slow: never predicted.
        next: the move that came last after this one, or the end of what is known.
        children: further moves that came after this one; None if there is one at most.
        fresh: some operand is new to the trace, or a number.
        unary: the operation, if it has one operand that is a value met before, and no parameters.
        binary: the same with two operands.
        parametric: the same with one operand and parameters.
        many: the same with several operands, and any parameters where `binary` does not say it.
        take: for `many`: values of the trace -> the operands.
        checked: `total` where the limit of a trace was looked at last.
        right: the operation, if its operands are a value met before and a floating-point number.
        left: the same with the number first.
        new_right: the operation, if its operands are a buffer new to the trace and such a number.
        new_left: the same with the number first.
        a: place of the first value, for those above, or its code if it is new to the trace; a place
            where nothing is otherwise.
        b: place of the second.
    """

    __slots__ = (
        "a", "aval", "b", "binary", "blocks", "checked", "children", "codes", "cuts", "depth",
        "fresh", "instr", "kind", "left", "many", "merged", "new_left", "new_right", "next", "op",
        "operands", "parametric", "params", "parent", "right", "round", "slot", "slow", "src", "take",
        "total", "unary", "unique",
    )  # fmt: skip

    parent: Any
    instr: Instr | None
    codes: tuple[int, ...]
    operands: tuple[int, ...]
    unique: bool
    merged: bool
    slot: int
    aval: Any
    src: Any
    total: int
    kind: Any
    cuts: dict[Any, Any] | None
    blocks: dict[Any, Any] | None
    depth: int
    round: Any
    op: Op | None
    params: Any
    slow: bool
    next: Move
    children: dict[Any, Move] | None
    fresh: bool
    unary: Op | None
    binary: Op | None
    parametric: Op | None
    many: Op | None
    take: Any
    checked: int
    right: Op | None
    left: Op | None
    new_right: Op | None
    new_left: Op | None
    a: int
    b: int

    def child(self, key: Any) -> Move | None:
        """The move after this one with an (instruction, codes, uniqueness), if it came before."""
        known = self.next
        if known.instr is key[0] and known.codes == key[1] and known.unique == key[2]:
            return known
        return None if self.children is None else self.children.get(key)

    def prepare(self) -> None:
        """Sets what following looks at, but `next`."""
        instr, codes = self.instr, self.codes
        self.op, self.params = (None, None) if instr is None else (instr.op, instr.params)
        self.fresh = bool(codes) and min(codes) < 0
        self.slow = False
        self.children = None
        self.unary = self.binary = self.parametric = self.many = self.take = None
        self.right = self.left = self.new_right = self.new_left = None
        self.a = self.b = 0
        self.checked = 0 if self.parent is None else self.parent.checked
        if self.total - self.checked >= CHECK_EVERY and self.cuttable:
            self.slow, self.checked = True, self.total
        if not (self.merged or self.unique):
            self._prepare_operands([code > 0 for code in codes])

    def _prepare_operands(self, met: list[bool]) -> None:
        op, codes = self.op, self.codes
        if met == [True]:
            self.a = codes[0]
            if self.params:
                self.parametric = op
            else:
                self.unary = op
        elif met == [True, True] and not self.params:
            self.a, self.b = codes
            self.binary = op
        elif len(met) > 1 and all(met):
            self.take, self.many = itemgetter(*codes), op
        elif self.kind is not None:
            kind, self.kind = self.kind, None
            if (self.operands[0] < 0) is not (self.operands[1] < 0):
                self.expect_number(1 if self.operands[1] < 0 else 0, kind)

    @property
    def cuttable(self) -> bool:
        """The trace may be cut here: the result is no tuple, nor taken from one."""
        instr = self.instr
        return instr is not None and instr.aval.parts is None and instr.op.name != "part"

    def expect_number(self, position: int, kind: type) -> None:
        """Lets the move be followed without a node for its number, which may be any but 0 and 1.

        Args:
            position: of the number among the two operands.
            kind: its type.
        """
        instr = self.instr
        if instr is None or self.merged or self.kind is kind:
            return
        aval, code = instr.in_avals[position], self.codes[1 - position]
        number = self.codes[position]
        if number > 0 or number <= -MET or not aval.dtype.is_float or self.operands[position] >= 0:
            return
        if code > 0:
            self.a, self.kind = code, kind
            if position:
                self.right = self.op
            else:
                self.left = self.op
        elif code == -instr.in_avals[1 - position].id:  # a buffer
            self.a, self.kind = code, kind
            if position:
                self.new_right = self.op
            else:
                self.new_left = self.op


class End(Move):
    """The end of what is known after a move, its parent: it agrees with nothing."""

    __slots__ = ()

    def __init__(self, parent: Move | None) -> None:
        self.parent = parent
        self.instr = None
        self.codes = self.operands = ()
        self.unique = self.merged = self.slow = self.fresh = False
        self.aval = self.src = self.kind = self.params = self.take = None
        self.slot = self.total = self.checked = self.a = self.b = self.depth = 0
        self.cuts = self.blocks = self.round = None
        self.children = None
        self.op = self.unary = self.binary = self.parametric = self.many = None
        self.right = self.left = self.new_right = self.new_left = None
        self.next = self


def root_move() -> Move:
    """What stands before the first move of a trace."""
    move: Move = End(None)
    move.next = End(move)
    return move


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


def lead(move: Move, after: Move) -> None:
    """Lets a move that is new be followed by another one alone."""
    if after.slow:
        move.next = End(move)
        move.children = {(after.instr, after.codes, after.unique): after}
    else:
        move.next = after


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
