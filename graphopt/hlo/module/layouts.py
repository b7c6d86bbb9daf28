"""Where the elements of an array lie in memory, read from its ``ShapeProto``."""

from __future__ import annotations

from itertools import accumulate
from operator import mul
from typing import Any


def memory_order(shape: Any) -> list[int]:
    """Dimensions of an array in the order of memory, the innermost first, those of size 1 aside."""
    dims = shape.dimensions
    return [dimension for dimension in shape.layout.minor_to_major if dims[dimension] != 1]


def extents(shape: Any) -> list[int]:
    """Sizes of the dimensions in `memory_order`."""
    return [shape.dimensions[dimension] for dimension in memory_order(shape)]


def merges_dimensions(value: Any, view: Any) -> bool:
    """True if a view of a value's memory has one dimension for several of the value's.

    The place of an element in several of one takes a division; the other way round it takes a product.
    """
    return not _boundaries(extents(value)) <= _boundaries(extents(view))


def _boundaries(sizes: list[int]) -> set[int]:
    """Elements of the innermost dimension, of the inner two, and so on, as far as these are not all."""
    return set(accumulate(sizes[:-1], mul))
