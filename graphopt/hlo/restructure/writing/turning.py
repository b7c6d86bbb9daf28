"""Exchanging the last two dimensions of values, throughout a computation and its kernels.

What reads such a value is turned as well, or written for it; `graphopt.hlo.restructure.rows.turned.regions`
says which values that may be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.proto import HloComputationProto
from graphopt.hlo.restructure.writing.values import array_shape


@dataclass(frozen=True)
class _Changed:
    """What has become of a value.

    Attributes:
        shape: ``ShapeProto`` that it has now.
        turned: numbers of the elements of a tuple whose dimensions have changed places; 0 for an array.
    """

    shape: Any
    turned: frozenset[int]


_ARRAY: Final = frozenset({0})
"""A turned array."""

_NONE: Final = frozenset[int]()
"""Nothing is turned."""


def exchanged(dimensions: Iterable[int], rank: int) -> list[int]:
    """Dimensions of an array whose last two change places."""
    last = {rank - 1: rank - 2, rank - 2: rank - 1}
    return [last.get(d, d) for d in dimensions]


def turn(computations: Mapping[int, Any], places: Collection[tuple[int, int]]) -> dict[int, Any]:
    """Turns values; returns changed copies, by id, of the computations that hold or read them.

    Args:
        computations: id -> ``HloComputationProto``; only read.
        places: (computation id, local id) of all instructions whose value is turned.
    """
    inside = {computation for computation, _ in places}
    called = {number: _kernels(proto) for number, proto in computations.items()}
    kernels = {kernel for found in called.values() for kernel in found}
    turning = _Turning(computations, places)
    for number in computations.keys() - kernels:
        if inside & {number, *called[number]}:
            turning.write(number, {})
    return turning.written


def _kernels(proto: Any) -> set[int]:
    """Ids of the computations of a computation's fusions."""
    fusions = (i for i in proto.instructions if i.opcode == "fusion")
    return {called for fusion in fusions for called in fusion.called_computation_ids}


class _Turning:
    """Turns values of a module; `written` holds the changed computations by id."""

    def __init__(
        self, computations: Mapping[int, Any], places: Collection[tuple[int, int]]
    ) -> None:
        self.computations = computations
        self.places = places
        self.written: dict[int, Any] = {}

    def concerns(self, number: int) -> bool:
        """True for a computation that holds instructions to turn."""
        return any(
            (number, i.id & LOCAL_ID) in self.places for i in self.computations[number].instructions
        )

    def write(self, number: int, given: Mapping[int, _Changed]) -> _Changed:
        """Changes a computation and its kernels; returns what has become of its root.

        Args:
            number: its id.
            given: parameter number -> what has become of it.
        """
        proto = HloComputationProto()
        proto.CopyFrom(self.computations[number])
        self.written[number] = proto
        values = _Body(self, proto, given).run()
        for instruction in proto.instructions:
            if instruction.opcode == "parameter" and instruction.parameter_number in given:
                shape = proto.program_shape.parameters[instruction.parameter_number]
                shape.CopyFrom(instruction.shape)
        root = next(i.shape for i in proto.instructions if i.id == proto.root_id)
        proto.program_shape.result.CopyFrom(root)
        return values.get(proto.root_id & LOCAL_ID, _Changed(root, _NONE))


class _Body:
    """The instructions of one computation."""

    def __init__(self, turning: _Turning, proto: Any, given: Mapping[int, _Changed]) -> None:
        self.turning = turning
        self.proto = proto
        self.given = given
        self.values: dict[int, _Changed] = {}
        """Local id -> what has become of it, of values that are turned or have another shape than before."""

    def run(self) -> dict[int, _Changed]:
        """Changes all instructions, operands first."""
        for instruction in self.proto.instructions:
            local = instruction.id & LOCAL_ID
            before = instruction.shape.SerializeToString()
            turned = self._write(
                local, instruction, [o & LOCAL_ID for o in instruction.operand_ids]
            )
            if turned or instruction.shape.SerializeToString() != before:
                self.values[local] = _Changed(instruction.shape, turned)
        return self.values

    def _write(self, local: int, instruction: Any, operands: list[int]) -> frozenset[int]:
        """Changes an instruction; returns which elements of its value are turned."""
        opcode = instruction.opcode
        changed = {n: self.values[o] for n, o in enumerate(operands) if o in self.values}
        if opcode == "parameter":
            given = self.given.get(instruction.parameter_number)
            if given is None:
                return _NONE
            instruction.shape.CopyFrom(given.shape)
            return given.turned
        if opcode == "fusion":
            return self._fusion(instruction, changed)
        if opcode == "get-tuple-element":
            return self._element(instruction, changed)
        if opcode == "tuple":
            for number, value in changed.items():
                instruction.shape.tuple_shapes[number].CopyFrom(value.shape)
            return frozenset(number for number, value in changed.items() if value.turned)
        reads = [number for number, value in changed.items() if value.turned]
        own = (self.proto.id, local) in self.turning.places
        if own and reads and opcode == "transpose":  # turned before and behind: it turns as it did
            *first, rows, columns = instruction.shape.dimensions
            dtype = instruction.shape.element_type
            instruction.shape.CopyFrom(array_shape(dtype, [*first, columns, rows]))
            return _ARRAY
        self._reader(instruction, reads)
        if own:
            self._own(instruction)
        return _ARRAY if own else _NONE

    def _fusion(self, fusion: Any, given: Mapping[int, _Changed]) -> frozenset[int]:
        """A kernel that reads or holds what is turned."""
        (inner,) = fusion.called_computation_ids
        if not given and not self.turning.concerns(inner):
            return _NONE
        root = self.turning.write(inner, given)
        fusion.shape.CopyFrom(root.shape)
        if fusion.fusion_kind == "kLoop":  # how many parts each dimension is cut into
            fusion.ClearField("backend_config")
        return root.turned

    def _element(self, element: Any, changed: Mapping[int, _Changed]) -> frozenset[int]:
        """An element of a tuple."""
        if 0 not in changed:
            return _NONE
        element.shape.CopyFrom(changed[0].shape.tuple_shapes[element.tuple_index])
        return _ARRAY if element.tuple_index in changed[0].turned else _NONE

    def _reader(self, instruction: Any, reads: list[int]) -> None:
        """What reads turned operands, by number, and is not turned for that."""
        if not reads:
            return
        if instruction.opcode == "dot":
            numbers = instruction.dot_dimension_numbers
            sides = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)
            rank = len(numbers.lhs_batch_dimensions) + 2
            for number in reads:
                sides[number][:] = exchanged(sides[number], rank)
        elif instruction.opcode == "reduce":
            rank = len(instruction.shape.dimensions) + len(instruction.dimensions)
            instruction.dimensions[:] = sorted(exchanged(instruction.dimensions, rank))
        elif instruction.opcode == "transpose":
            self._no_longer_turns(instruction, list(instruction.shape.dimensions))

    def _own(self, instruction: Any) -> None:
        """An instruction whose value is turned; products are written later."""
        *first, rows, columns = instruction.shape.dimensions
        dims = [*first, columns, rows]
        if instruction.opcode == "transpose":
            self._no_longer_turns(instruction, dims)
            return
        if instruction.opcode in ("broadcast", "iota", "concatenate"):
            instruction.dimensions[:] = exchanged(instruction.dimensions, len(dims))
        elif instruction.opcode == "slice":
            _exchange_last(instruction.slice_dimensions)
        elif instruction.opcode == "pad":
            _exchange_last(instruction.padding_config.dimensions)
        elif instruction.opcode == "reduce-window":
            _exchange_last(instruction.window.dimensions)
        instruction.shape.CopyFrom(array_shape(instruction.shape.element_type, dims))

    def _no_longer_turns(self, transposition: Any, dims: list[int]) -> None:
        """What it reads has the order of its result already."""
        transposition.opcode = "copy"
        transposition.ClearField("dimensions")
        dtype = transposition.shape.element_type
        transposition.shape.CopyFrom(array_shape(dtype, dims))


def _exchange_last(per_dimension: Any) -> None:
    """Exchanges the last two messages of a field that has one for each dimension."""
    before = type(per_dimension[-1]).FromString(per_dimension[-1].SerializeToString())
    per_dimension[-1].CopyFrom(per_dimension[-2])
    per_dimension[-2].CopyFrom(before)
