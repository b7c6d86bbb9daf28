"""A comparator on all pairs of elements: what concerns one element only is computed once per element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.proto import HloInstructionProto
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value, array_shape

Spread = Callable[[Value], Value]
"""Repeats a value per element to all pairs."""

_OF_ITSELF: Final = ("name", "id", "operand_ids", "metadata", "original_value")


class Comparator:
    """Parameters 2k and 2k + 1 are the k-th arrays' elements on the left and on the right."""

    def __init__(self, block: Block, computation: Any, arrays: Sequence[Value]) -> None:
        """Computes what depends on the left element only, and on the right one only.

        Args:
            block: where to write.
            computation: ``HloComputationProto`` for which `is_elementwise_function` holds.
            arrays: row-major arrays of one shape, one per pair of parameters.
        """
        self._block = block
        self._computation = computation
        self._dims = arrays[0].dims
        self._written: dict[tuple[bytes, tuple[int, ...]], Value] = {}
        self._side: dict[int, int | None] = {}
        """Local id -> 0 or 1 where it depends on the left or right element only; None for constants."""
        self._alone: dict[int, Value] = {}
        """The same -> its value per element; of constants, the scalar."""
        for instruction in computation.instructions:
            self._add(instruction, arrays)

    def _add(self, instruction: Any, arrays: Sequence[Value]) -> None:
        local = instruction.id & LOCAL_ID
        if instruction.opcode == "parameter":
            array, side = divmod(instruction.parameter_number, 2)
            self._side[local], self._alone[local] = side, arrays[array]
        elif instruction.opcode == "constant":
            self._side[local], self._alone[local] = None, self._block.clone(instruction, ())
        elif instruction.opcode != "tuple":
            operands = [o & LOCAL_ID for o in instruction.operand_ids]
            sides = {self._side[o] for o in operands if o in self._side} - {None}
            if len(sides) == 1 and all(o in self._alone for o in operands):
                (self._side[local],) = sides
                self._alone[local] = self._once(instruction, operands)

    def _once(self, instruction: Any, operands: list[int]) -> Value:
        """The instruction on whole arrays; once where both sides do the same to the same array."""
        values = []
        for operand in operands:
            value = self._alone[operand]
            constant = self._side[operand] is None
            values.append(self._repeated(value, self._dims) if constant else value)
        bare = HloInstructionProto()
        bare.CopyFrom(instruction)
        for name in _OF_ITSELF:
            bare.ClearField(name)
        key = bare.SerializeToString(deterministic=True), tuple(v.id for v in values)
        if key not in self._written:
            self._written[key] = _apply(self._block, instruction, values, self._dims)
        return self._written[key]

    def _repeated(self, scalar: Value, dims: Sequence[int]) -> Value:
        key = b"", (scalar.id, *dims)
        if key not in self._written:
            self._written[key] = self._block.broadcast(scalar, dims)
        return self._written[key]

    def pairs(self, left: Spread, right: Spread, dims: Sequence[int]) -> Value:
        """Whether the left element goes before the right one, pred of shape `dims`.

        Args:
            left: repeats a value per element to the pairs in which the element is on the left.
            right: likewise.
            dims: of all pairs.
        """
        values: dict[int, Value] = {}

        def read(local: int) -> Value:
            if local in values:
                return values[local]
            value, side = self._alone[local], self._side[local]
            if side is None:
                return self._block.broadcast(value, dims)
            return (right if side else left)(value)

        root = self._computation.root_id & LOCAL_ID
        for instruction in self._computation.instructions:
            local = instruction.id & LOCAL_ID
            operands = [o & LOCAL_ID for o in instruction.operand_ids]
            if instruction.opcode == "tuple":
                return read(operands[0])
            if local not in self._alone:
                values[local] = _apply(self._block, instruction, [read(o) for o in operands], dims)
        return read(root)


def _apply(block: Block, instruction: Any, operands: list[Value], dims: Sequence[int]) -> Value:
    """A scalar instruction on arrays of one shape."""
    shape = array_shape(instruction.shape.element_type, dims)
    if instruction.opcode == "copy":
        return operands[0]
    if instruction.opcode == "bitcast":
        same = operands[0].dtype == instruction.shape.element_type
        return operands[0] if same else block.add("bitcast-convert", shape, operands)
    return block.clone(instruction, operands, shape)
