"""Applied functions on whole arrays: the combiner of a scatter or a window, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.opcodes import OP_BY_NAME, OpKind
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.writing.blocks import Block
from graphopt.hlo.restructure.writing.values import Value, array_shape


def is_elementwise_function(computation: Any) -> bool:
    """True if an applied computation is scalar arithmetic that `inline` can repeat on arrays."""
    for instruction in computation.instructions:
        opcode = instruction.opcode
        op = OP_BY_NAME.get(opcode)
        if opcode in ("parameter", "constant"):
            if instruction.shape.element_type == DType.TUPLE or instruction.shape.dimensions:
                return False
        elif opcode == "tuple":
            if instruction.id != computation.root_id:
                return False
        elif opcode == "bitcast":  # of a scalar: other type, same bits
            if instruction.shape.dimensions:
                return False
        elif op is None or op.kind is not OpKind.ELEMENTWISE or instruction.shape.dimensions:
            return False
    return True


def inline(block: Block, computation: Any, arguments: Sequence[Value]) -> list[Value]:
    """Applies a scalar computation to arrays of one shape, element by element.

    Args:
        block: where to write.
        computation: ``HloComputationProto`` for which `is_elementwise_function` holds.
        arguments: row-major arrays of one shape, one per parameter.

    Returns:
        One array per result.
    """
    dims = arguments[0].dims
    values: dict[int, Value] = {}
    for instruction in computation.instructions:
        local = instruction.id & LOCAL_ID
        operands = [values[o & LOCAL_ID] for o in instruction.operand_ids]
        if instruction.opcode == "parameter":
            values[local] = arguments[instruction.parameter_number]
        elif instruction.opcode == "constant":
            scalar = block.clone(instruction, ())
            values[local] = block.broadcast(scalar, dims) if dims else scalar
        elif instruction.opcode == "tuple":
            return operands
        elif instruction.opcode == "copy":
            values[local] = operands[0]
        elif instruction.opcode == "bitcast":
            same = operands[0].dtype == instruction.shape.element_type
            shape = array_shape(instruction.shape.element_type, dims)
            values[local] = operands[0] if same else block.add("bitcast-convert", shape, operands)
        else:
            shape = array_shape(instruction.shape.element_type, dims)
            values[local] = block.clone(instruction, operands, shape)
    return [values[computation.root_id & LOCAL_ID]]
