"""Products of a tall matrix, one of many short rows, and a vector.

XLA multiplies a matrix by a vector in vector code along what lies together in memory. Where that is a row of
a few elements, as in every regression on a few features, it is scalar code, whichever side is summed. The
same matrix, turned, has few and long rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from graphopt.hlo.module.index import LOCAL_ID
from graphopt.hlo.module.proto import DTYPE_BYTES, DType
from graphopt.hlo.restructure.writing.values import is_row_major

TYPES: Final = frozenset({DType.F32, DType.F64})
"""Element types of matrices that are turned."""

LONGEST_ROW: Final = 128
"""Bytes from which on vector code runs along a row: shorter ones are short."""

TALL: Final = 2
"""Rows for each column that a tall matrix has at least."""

LEAST_ROWS: Final = 16
"""Rows of the smallest."""

_TURNING_PRODUCT: Final = ["copy", "dot", "parameter", "parameter", "transpose"]
"""Operations of a kernel that turns a matrix and multiplies it by a vector, sorted."""


def tall_operand(dot: Any, shapes: Sequence[Any]) -> int | None:
    """Number of the operand that is a tall matrix, where the other is a vector; None if there is none.

    Args:
        dot: ``HloInstructionProto`` of the product.
        shapes: ``ShapeProto`` of its operands.
    """
    numbers = dot.dot_dimension_numbers
    if numbers.lhs_batch_dimensions or dot.shape.element_type not in TYPES:
        return None
    contracted = (
        list(numbers.lhs_contracting_dimensions),
        list(numbers.rhs_contracting_dimensions),
    )
    for operand in (0, 1):
        matrix, vector = shapes[operand], shapes[1 - operand]
        summed = contracted[operand]
        if len(matrix.dimensions) != 2 or len(summed) != 1 or not is_row_major(matrix):
            continue
        if matrix.element_type != dot.shape.element_type:
            continue
        is_vector = prod(vector.dimensions) == matrix.dimensions[summed[0]]
        if is_vector and is_tall(matrix.dimensions, matrix.element_type):
            return operand
    return None


def turned_operand(kernel: Any) -> int | None:
    """Number of the parameter that a kernel turns and multiplies by a vector; None if it does not.

    XLA makes one kernel of both where the product is small.
    """
    if sorted(i.opcode for i in kernel.instructions) != _TURNING_PRODUCT:
        return None
    by_id = {i.id & LOCAL_ID: i for i in kernel.instructions}
    dot = by_id[kernel.root_id & LOCAL_ID]
    if dot.opcode != "dot" or dot.shape.element_type not in TYPES:
        return None
    for operand in dot.operand_ids:
        turned = source = by_id[operand & LOCAL_ID]
        while source.opcode in ("copy", "transpose"):
            source = by_id[source.operand_ids[0] & LOCAL_ID]
        if source is turned or len(source.shape.dimensions) != 2:
            continue
        turns = list(turned.shape.dimensions) == list(source.shape.dimensions)[::-1]
        turns &= is_row_major(source.shape) and is_row_major(turned.shape)
        sums_rows = prod(dot.shape.dimensions) == source.shape.dimensions[1]
        if turns and sums_rows and is_tall(source.shape.dimensions, source.shape.element_type):
            return int(source.parameter_number)
    return None


def is_tall(dims: Sequence[int], dtype: int) -> bool:
    """True for a matrix of many short rows, which would be few long ones if it were turned."""
    rows, columns = dims
    short = columns * DTYPE_BYTES[DType(dtype)] < LONGEST_ROW
    return columns > 1 and short and rows >= max(TALL * columns, LEAST_ROWS)
