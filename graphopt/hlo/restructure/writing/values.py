"""Values of blocks, and the shapes of arrays and tuples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from graphopt.hlo.module.layouts import memory_order
from graphopt.hlo.module.proto import (
    DType,
    ShapeProto,
)


@dataclass(frozen=True)
class Value:
    """An instruction of the computation being written.

    Attributes:
        id: local instruction id.
        shape: ``ShapeProto`` of the result.
    """

    id: int
    shape: Any

    @property
    def dims(self) -> tuple[int, ...]:
        """Dimension sizes, major to minor."""
        return tuple(self.shape.dimensions)

    @property
    def dtype(self) -> int:
        """Element type (`DType`)."""
        return int(self.shape.element_type)


def array_shape(dtype: int, dims: Sequence[int]) -> Any:
    """A row-major array shape, written as XLA writes it."""
    shape = ShapeProto(element_type=int(dtype))
    shape.dimensions.extend(dims)
    shape.is_dynamic_dimension.extend([False] * len(dims))
    shape.layout.minor_to_major.extend(range(len(dims) - 1, -1, -1))
    shape.layout.tail_padding_alignment_in_elements = 1
    return shape


def tuple_shape(parts: Iterable[Any]) -> Any:
    """The shape of a tuple of shapes."""
    shape = ShapeProto(element_type=DType.TUPLE)
    for part in parts:
        shape.tuple_shapes.add().CopyFrom(part)
    return shape


def is_row_major(shape: Any) -> bool:
    """True for an array whose last dimension varies fastest, dimensions of size 1 aside."""
    order = shape.layout.minor_to_major
    if len(order) < 2:
        return True
    order = list(order)
    if order == sorted(order, reverse=True):
        return True
    order = memory_order(shape)
    return order == sorted(order, reverse=True)
