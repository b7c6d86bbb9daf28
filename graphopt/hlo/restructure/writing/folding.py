"""Small integer arrays that are known when a loop is written out: its counter, tables of shift amounts.

Only integers and truth values: their arithmetic is exact and the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.proto import DType, HloInstructionProto, LiteralProto
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value, is_row_major

Array = NDArray[Any]

MAX_ELEMENTS: Final = 64
"""Largest array that is followed."""

_TYPES: Final[dict[int, tuple[type[np.generic], str]]] = {
    DType.PRED: (np.bool_, "preds"),
    DType.S32: (np.int32, "s32s"),
    DType.S64: (np.int64, "s64s"),
    DType.U32: (np.uint32, "u32s"),
    DType.U64: (np.uint64, "u64s"),
}
"""Element type -> numpy type and field of the literal."""

INTEGERS: Final = {dtype: made for dtype, (made, _) in _TYPES.items()}
"""Element type -> numpy type, of what is followed."""

_BINARY: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "minimum": np.minimum,
    "maximum": np.maximum,
}

_COMPARISONS: Final[dict[str, Callable[[Array, Array], Array]]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def followed(shape: Any) -> bool:
    """True for an array whose values are followed: small, row-major, of integers or truth values."""
    return (
        shape.element_type in _TYPES
        and prod(shape.dimensions) <= MAX_ELEMENTS
        and is_row_major(shape)
    )


def value_of(constant: Any) -> Array | None:
    """The value of a ``constant`` instruction, or None if it is not followed."""
    if not followed(constant.shape):
        return None
    dtype, field = _TYPES[constant.shape.element_type]
    literal = LiteralProto.FromString(constant.literal)
    value = np.array(list(getattr(literal, field)), dtype)
    dims = tuple(constant.shape.dimensions)
    return value.reshape(dims) if value.size == prod(dims) else None


def evaluate(instruction: Any, operands: Sequence[Array]) -> Array | None:
    """The result of an instruction on known operands, or None if it is not followed.

    Integers wrap around: the caller ignores numpy's warnings of overflow.
    """
    if not followed(instruction.shape):
        return None
    dtype, _ = _TYPES[instruction.shape.element_type]
    out = _result(instruction, operands, dtype)
    return None if out is None else np.asarray(out, dtype)


def _result(instruction: Any, operands: Sequence[Array], dtype: type[np.generic]) -> Array | None:
    opcode, dims = instruction.opcode, tuple(instruction.shape.dimensions)
    if opcode == "constant":
        return value_of(instruction)
    if opcode in ("copy", "reshape") or (opcode == "bitcast" and operands[0].dtype == dtype):
        return operands[0].reshape(dims)
    if opcode == "slice":
        cut = (slice(s.start, s.limit, s.stride) for s in instruction.slice_dimensions)
        return operands[0][tuple(cut)]
    if opcode == "broadcast":
        sizes = [1] * len(dims)
        for axis, dimension in enumerate(instruction.dimensions):
            sizes[dimension] = operands[0].shape[axis]
        return np.broadcast_to(operands[0].reshape(sizes), dims)
    return arithmetic(instruction, operands, dtype)


def arithmetic(
    instruction: Any, operands: Sequence[Array], dtype: type[np.generic]
) -> Array | None:
    """The result of an elementwise instruction on known operands, or None if it is not followed."""
    opcode = instruction.opcode
    if opcode == "convert" and dtype is not np.bool_:
        return operands[0].astype(dtype)
    if opcode == "compare":
        return _COMPARISONS[instruction.comparison_direction](operands[0], operands[1])
    if opcode in _BINARY and dtype is not np.bool_:
        return _BINARY[opcode](operands[0], operands[1])
    return None


def constant_proto(value: Array, shape: Any) -> Any:
    """A ``constant`` instruction without name and id."""
    _, field = _TYPES[shape.element_type]
    literal = LiteralProto()
    literal.shape.CopyFrom(shape)
    getattr(literal, field).extend(value.ravel().tolist())
    proto = HloInstructionProto(opcode="constant", literal=literal.SerializeToString())
    proto.shape.CopyFrom(shape)
    return proto


class Folder:
    """Which values of a block are known, and the constants written for them."""

    def __init__(self, block: Block) -> None:
        """Knows nothing."""
        self.block = block
        self.known: dict[int, Array] = {}
        self.parts: dict[int, dict[int, Array]] = {}
        """Value id of a tuple -> position -> known element."""

    def of(self, value: Any) -> Array | None:
        """The known value of an instruction of the block."""
        return self.known.get(value.id) if isinstance(value, Value) else None

    def constant(self, value: Array, shape: Any) -> Value:
        """A constant of the block whose value is known."""
        out = self.block.clone(constant_proto(value, shape), ())
        self.known[out.id] = value
        return out

    def fold(self, instruction: Any, operands: Sequence[Any]) -> Value | None:
        """The constant that an instruction of a body comes to; None if that is not known."""
        values = [self.of(o) for o in operands]
        if any(v is None for v in values):
            return None
        with np.errstate(over="ignore"):
            found = evaluate(instruction, [v for v in values if v is not None])
        return None if found is None else self.constant(found, instruction.shape)

    def known_in(self, body: Any, operands: Sequence[Any]) -> dict[int, Array]:
        """Local id -> value, of everything known in the body of a fusion.

        Args:
            body: ``HloComputationProto``, only read.
            operands: of the fusion.
        """
        known: dict[int, Array] = {}
        with np.errstate(over="ignore"):
            for instruction in body.instructions:
                if instruction.opcode == "parameter":
                    value = self.of(operands[instruction.parameter_number])
                else:
                    value = _from_known(instruction, known)
                if value is not None:
                    known[instruction.id & LOCAL_ID] = value
        return known


def _from_known(instruction: Any, known: dict[int, Array]) -> Array | None:
    """The result of an instruction of a body, or None where an operand is not known."""
    operands = []
    for operand in instruction.operand_ids:
        value = known.get(operand & LOCAL_ID)
        if value is None:
            return None
        operands.append(value)
    return evaluate(instruction, operands)


def write_known(body: Any, known: Mapping[int, Array]) -> None:
    """Replaces what is known in the body of a fusion by constants; drops what nothing needs then.

    Parameters stay, because the fusion passes them.

    Args:
        body: ``HloComputationProto``, changed in place.
        known: `Folder.known_in`.
    """
    needed = {body.root_id & LOCAL_ID}
    instructions = body.instructions
    for place in range(len(instructions) - 1, -1, -1):
        instruction = instructions[place]
        opcode, number = instruction.opcode, instruction.id
        if opcode == "parameter":
            continue
        if number & LOCAL_ID not in needed:
            del instructions[place]
            continue
        value = known.get(number & LOCAL_ID)
        if value is None or opcode == "constant":
            needed.update([o & LOCAL_ID for o in instruction.operand_ids])
            continue
        name = instruction.name
        instruction.CopyFrom(constant_proto(value, instruction.shape))
        instruction.name, instruction.id = name, number
