"""Where the elements of an array lie in memory, read from its ``ShapeProto``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

from graphopt.hlo.module.proto import ShapeProto


def memory_order(shape: Any) -> list[int]:
    """Dimensions of an array in the order of memory, the innermost first, those of size 1 aside."""
    dims = shape.dimensions
    return [dimension for dimension in shape.layout.minor_to_major if dims[dimension] != 1]


def extents(shape: Any) -> list[int]:
    """Sizes of the dimensions in `memory_order`."""
    return [shape.dimensions[dimension] for dimension in memory_order(shape)]


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


def array_shape(dtype: int, dims: Sequence[int]) -> Any:
    """A row-major array shape, written as XLA writes it."""
    shape = ShapeProto(element_type=int(dtype))
    shape.dimensions.extend(dims)
    shape.is_dynamic_dimension.extend([False] * len(dims))
    shape.layout.minor_to_major.extend(range(len(dims) - 1, -1, -1))
    shape.layout.tail_padding_alignment_in_elements = 1
    return shape


@dataclass(frozen=True)
class FlatForm:
    """Dimensions under which a kernel of odd rows is vector code.

    Attributes:
        row: elements of what all rows read alike, such as a bias; 0 for arrays of one dimension.
        times: rows that are computed as one; what they read alike is repeated so many times.
    """

    row: int = 0
    times: int = 1

    def of(self, shape: Any) -> Any:
        """``ShapeProto`` of a row-major array of the kernel in this form; that of a number as it is."""
        elements, length = prod(shape.dimensions), self.row * self.times
        if not shape.dimensions:
            return shape
        whole = [elements // length, length] if self.row else [elements]
        dims = [length] if elements == self.row else whole
        same = list(shape.dimensions) == dims
        return shape if same else array_shape(shape.element_type, dims)


def merges_dimensions(value: Any, view: Any) -> bool:
    """True if a view of a value's memory has one dimension for several of the value's.

    The place of an element in several of one takes a division; the other way round it takes a product.
    """
    return not _boundaries(extents(value)) <= _boundaries(extents(view))


def _boundaries(sizes: list[int]) -> set[int]:
    """Elements of the innermost dimension, of the inner two, and so on, as far as these are not all."""
    return set(accumulate(sizes[:-1], mul))
