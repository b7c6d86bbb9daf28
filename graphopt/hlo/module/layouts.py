"""Where the elements of an array lie in memory, read from its ``ShapeProto``."""

from __future__ import annotations

from collections.abc import Sequence
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


def flat_shape(shape: Any) -> Any:
    """``ShapeProto`` of the elements of a row-major array under one dimension; that of a number as it is."""
    if len(shape.dimensions) < 2:
        return shape
    return array_shape(shape.element_type, [prod(shape.dimensions)])


def merges_dimensions(value: Any, view: Any) -> bool:
    """True if a view of a value's memory has one dimension for several of the value's.

    The place of an element in several of one takes a division; the other way round it takes a product.
    """
    return not _boundaries(extents(value)) <= _boundaries(extents(view))


def _boundaries(sizes: list[int]) -> set[int]:
    """Elements of the innermost dimension, of the inner two, and so on, as far as these are not all."""
    return set(accumulate(sizes[:-1], mul))
