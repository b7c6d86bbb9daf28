"""Values of blocks, and the shapes of arrays and tuples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from graphopt.hlo.module.layouts import array_shape as array_shape
from graphopt.hlo.module.layouts import is_row_major as is_row_major
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


def tuple_shape(parts: Iterable[Any]) -> Any:
    """The shape of a tuple of shapes."""
    shape = ShapeProto(element_type=DType.TUPLE)
    for part in parts:
        shape.tuple_shapes.add().CopyFrom(part)
    return shape
