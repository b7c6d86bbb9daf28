"""What all iterations of a loop share: values that its body, or what that calls, computes from what it keeps.

XLA moves such values ahead of a loop early. What it writes later stays: copies into the layout that a product
wants above all. And tall matrices that are multiplied by vectors are read turned
(`graphopt.hlo.restructure.rows.loops.tall`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.rows.loops.tall import tall_operand, turned_operand
from graphopt.hlo.restructure.writing.passing import inner_loop, kept_places, parameter_of
from graphopt.hlo.restructure.writing.values import is_row_major

MAX_CONSTANT: Final = 1 << 16
"""Elements of the largest constant that is written a second time."""

MIN_ELEMENTS: Final = 16
"""Smaller values are computed again in less time than it takes to pass them."""

_CALLERS: Final = frozenset({"while", "conditional", "call"})

KERNELS: Final = frozenset(
    {"fusion", "transpose", "slice", "broadcast", "concatenate", "reverse", "pad"}
)
"""Operations that may run ahead of the loop. No copies: they are there to be overwritten."""

_TURNING: Final = (["copy", "parameter", "transpose"], ["parameter", "transpose"])
"""Operations of a kernel that turns a matrix, sorted."""

_OVERWRITING: Final = frozenset({"dynamic-update-slice", "scatter"})
"""Operations that write into the buffer of their first operand, as kernels with them do."""

_READERS: Final = KERNELS | frozenset(
    "dot reduce bitcast copy convolution dynamic-slice gather select add multiply subtract divide".split()
)
"""Operations that only read their operands, if a kernel holds nothing that overwrites."""


@dataclass(frozen=True)
class Made:
    """A value that an instruction computes from what a loop keeps.

    Attributes:
        computation: id of its computation.
        local: its local id there.
    """

    computation: int
    local: int


Kept = int | Made
"""A value that a loop shares: a place in the tuple that it carries, or made from such."""


@dataclass(frozen=True)
class Turned:
    """A tall matrix, turned."""

    matrix: Kept


Key = Made | Turned
"""What a loop may carry beside its own tuple."""


@dataclass(frozen=True)
class Use:
    """A product of a tall matrix and a vector.

    Attributes:
        computation: id of the computation around it.
        dot: its local id there; that of a kernel which turns the matrix first, if there is one.
        operand: number of the matrix among its operands.
        matrix: what it is; None for a constant beside the product.
    """

    computation: int
    dot: int
    operand: int
    matrix: Kept | None


@dataclass
class Search:
    """Finds what a loop shares. All ids of instructions are (computation id, local id).

    Attributes:
        computation: id -> ``HloComputationProto``.
        kernels: products inside of kernels count.
        stays: instructions that are part of kernels that are not yet formed.
        uses: products whose matrix could be turned.
        operands: of values that are made ahead; those that are missing are constants.
        moved: what is read instead of a value that is made ahead.
        needs: loop, call or conditional -> what each body that it calls reads, in an order.
        kept: all values that the loop keeps, or that are computed from such.
    """

    computation: Callable[[int], Any]
    kernels: bool
    stays: Collection[tuple[int, int]] = ()
    uses: list[Use] = field(default_factory=list)
    operands: dict[Made, dict[int, Kept]] = field(default_factory=dict)
    moved: dict[Made, Key] = field(default_factory=dict)
    needs: dict[tuple[int, int], list[list[Key]]] = field(default_factory=dict)
    kept: set[tuple[int, int]] = field(default_factory=set)

    def loop(self, body: Any) -> list[Key]:
        """Looks through the body of a loop; returns what it would read."""
        kept = kept_places(body)
        parts = range(len(parameter_of(body).shape.tuple_shapes))
        return self.inside(body, [place if place in kept else None for place in parts])

    def inside(self, body: Any, elements: Sequence[int | None]) -> list[Key]:
        """Looks through a computation whose parameter is a tuple.

        Args:
            body: ``HloComputationProto``.
            elements: place of each element of the tuple in that of the loop; None where it changes.

        Returns:
            What the computation would read.
        """
        return _Body(self, body, elements).run()


class _Body:
    """One computation, looked through in its order."""

    def __init__(self, search: Search, body: Any, elements: Sequence[int | None]) -> None:
        self.search = search
        self.body = body
        self.elements = elements
        self.by_id = {i.id & LOCAL_ID: i for i in body.instructions}
        self.kept: dict[int, Kept] = {}
        self.tuples: dict[int, Sequence[int | None]] = {}
        self.needed: dict[Key, None] = {}
        self.whole, self.changed = set[int](), set[int]()

    def _readers(self) -> tuple[set[int], set[int]]:
        """Values that are read by more than readers of an element, and those that may be overwritten."""
        whole, changed = {self.body.root_id & LOCAL_ID}, {self.body.root_id & LOCAL_ID}
        for local, instruction in reversed(self.by_id.items()):
            operands = [o & LOCAL_ID for o in instruction.operand_ids]
            if instruction.opcode != "get-tuple-element":
                whole.update(operands)
            alias = instruction.opcode == "bitcast" and local in changed
            if alias or not self._only_reads(instruction):
                changed.update(operands)
        return whole, changed

    def _only_reads(self, instruction: Any) -> bool:
        if instruction.opcode == "fusion":
            inner = self.search.computation(instruction.called_computation_ids[0])
            return not any(i.opcode in _OVERWRITING for i in inner.instructions)
        return instruction.opcode in _READERS

    def run(self) -> list[Key]:
        """Returns what the computation would read; nothing if its tuple is passed on as it is."""
        self.whole, self.changed = self._readers()
        if parameter_of(self.body).id & LOCAL_ID in self.whole:
            return []
        for local, instruction in self.by_id.items():
            operands = [o & LOCAL_ID for o in instruction.operand_ids]
            if instruction.opcode == "parameter":
                self.tuples[local] = self.elements
            elif instruction.opcode == "get-tuple-element":
                if operands[0] in self.tuples:
                    self._name(local, self.tuples[operands[0]][instruction.tuple_index])
            elif instruction.opcode == "tuple":
                self.tuples[local] = [self._place(o) for o in operands]
            elif instruction.opcode in _CALLERS:
                if local not in self.whole:
                    self._called(local, instruction, [self.tuples.get(o) for o in operands])
            elif self._is_made(local, instruction, operands):
                self._make(local, operands)
            else:
                self._read(local, instruction, operands)
        return list(self.needed)

    def _name(self, local: int, value: Kept | None) -> None:
        if value is not None:
            self.kept[local] = value
            self.search.kept.add((self.body.id, local))

    def _place(self, local: int) -> int | None:
        """Values that are made are not passed on in tuples: those are for loops to overwrite."""
        value = self.kept.get(local)
        return value if isinstance(value, int) else None

    def _is_made(self, local: int, instruction: Any, operands: list[int]) -> bool:
        """True for what may be computed ahead of the loop."""
        known = [o for o in operands if o in self.kept]
        if not known or local in self.changed or instruction.control_predecessor_ids:
            return False
        if any(o not in self.kept and self.by_id[o].opcode != "constant" for o in operands):
            return False
        if instruction.opcode == "bitcast":
            return isinstance(self.kept[operands[0]], Made)
        if (self.body.id, local) in self.search.stays:
            return False
        if instruction.opcode not in KERNELS or instruction.fusion_kind == "kCustom":
            return False
        return prod(instruction.shape.dimensions) >= MIN_ELEMENTS and self._only_reads(instruction)

    def _make(self, local: int, operands: list[int]) -> None:
        made = Made(self.body.id, local)
        self._name(local, made)
        self.search.operands[made] = {o: self.kept[o] for o in operands if o in self.kept}
        turns = self._turns(self.by_id[local])
        self.search.moved[made] = Turned(self.kept[operands[0]]) if turns else made

    def _turns(self, instruction: Any) -> bool:
        """True for what only turns a matrix."""
        if instruction.opcode == "transpose":
            source = self.by_id[instruction.operand_ids[0] & LOCAL_ID].shape
            opcodes = _TURNING[-1]
        elif instruction.opcode == "fusion":
            inner = self.search.computation(instruction.called_computation_ids[0])
            source = next(i.shape for i in inner.instructions if i.opcode == "parameter")
            opcodes = sorted(i.opcode for i in inner.instructions)
        else:
            return False
        rows_first = is_row_major(source) and is_row_major(instruction.shape)
        turned = list(source.dimensions)[::-1] == list(instruction.shape.dimensions)
        return opcodes in _TURNING and len(source.dimensions) == 2 and turned and rows_first

    def _read(self, local: int, instruction: Any, operands: list[int]) -> None:
        """What is read of values that are made ahead, or turned."""
        turned = None
        if instruction.opcode == "dot":
            turned = self._product(instruction, operands)
        elif instruction.opcode == "fusion":
            turned = self._turning_product(instruction, operands)
            if turned is None and self.search.kernels:
                self._fused(instruction, [self.kept.get(o) for o in operands])
        for number, operand in enumerate(operands):
            value = self.kept.get(operand)
            if number != turned and isinstance(value, Made):
                self.needed[self.search.moved[value]] = None

    def _product(self, dot: Any, operands: list[int]) -> int | None:
        """The number of the operand that a product reads turned."""
        operand = tall_operand(dot, [self.by_id[o].shape for o in operands])
        if operand is None:
            return None
        matrix = self.kept.get(operands[operand])
        source = self.by_id[operands[operand]]
        if matrix is None:
            size = prod(source.shape.dimensions)
            if source.opcode != "constant" or size > MAX_CONSTANT:
                return None
        else:
            self.needed[Turned(matrix)] = None
        self.search.uses.append(Use(self.body.id, dot.id & LOCAL_ID, operand, matrix))
        return operand

    def _turning_product(self, fusion: Any, operands: list[int]) -> int | None:
        """The number of the operand that a kernel turns and multiplies by a vector."""
        inner = self.search.computation(fusion.called_computation_ids[0])
        operand = turned_operand(inner)
        matrix = None if operand is None else self.kept.get(operands[operand])
        if operand is None or matrix is None:
            return None
        self.needed[Turned(matrix)] = None
        self.search.uses.append(Use(self.body.id, fusion.id & LOCAL_ID, operand, matrix))
        return operand

    def _fused(self, fusion: Any, operands: list[Kept | None]) -> None:
        """Products in kernels count too: they are taken out of them before anything is written."""
        inner = self.search.computation(fusion.called_computation_ids[0])
        if any(i.opcode == "dot" for i in inner.instructions):
            body = _Body(self.search, inner, ())
            for local, instruction in body.by_id.items():
                if instruction.opcode == "parameter":
                    body._name(local, operands[instruction.parameter_number])
                elif instruction.opcode == "dot":
                    body._product(instruction, [o & LOCAL_ID for o in instruction.operand_ids])

    def _called(
        self, local: int, instruction: Any, given: list[Sequence[int | None] | None]
    ) -> None:
        """What a loop, conditional or call reads of the tuples that it is given."""
        search = self.search
        loop = inner_loop(instruction, search.computation)
        if loop is not None:
            callees = [(loop.called_computation_ids[0], given[0])]
        elif instruction.opcode == "conditional":
            callees = list(zip(instruction.called_computation_ids, given[1:], strict=True))
        elif instruction.opcode == "call" and len(given) == 1:
            callees = [(instruction.called_computation_ids[0], given[0])]
        else:
            return
        shapes = [parameter_of(search.computation(callee)).shape for callee, _ in callees]
        if any(shape.element_type != DType.TUPLE for shape in shapes):
            return
        before = len(search.uses), len(search.operands)
        needs: list[list[Key]] = []
        for (callee, elements), shape in zip(callees, shapes, strict=True):
            body = search.computation(callee)
            if elements is None:
                elements = [None] * len(shape.tuple_shapes)
            if loop is not None:
                kept = kept_places(body)
                elements = [e if i in kept else None for i, e in enumerate(elements)]
            needs.append(search.inside(body, elements))
        if (len(search.uses), len(search.operands)) > before:
            search.needs[self.body.id, local] = needs
            self.needed.update(dict.fromkeys(key for keys in needs for key in keys))
