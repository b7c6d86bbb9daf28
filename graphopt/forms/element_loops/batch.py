"""Batches: dimensions of arrays whose places are computed apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any


class Entangled(Exception):
    """An equation that joins elements of a batch, or one that no row of the table knows; with its name."""


@dataclass(frozen=True)
class Batch:
    """What is computed of a batch.

    Attributes:
        dims: dimensions that stand together, in this order, in every array of the batch.
        block: elements of the batch that are computed together, as one dimension in place of those.
    """

    dims: tuple[int, ...]
    block: int

    @property
    def size(self) -> int:
        """Elements of the batch."""
        return prod(self.dims)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def stands(self, dims: Sequence[int], at: int = 0) -> bool:
        """Whether the batch can be the dimensions of an array from this one on."""
        return tuple(dims[at : at + self.rank]) == self.dims

    def found(self, dims: Sequence[int]) -> int | None:
        """The first of the dimensions of an array that can be the batch; None for no array of the batch."""
        return next((at for at in range(len(dims)) if self.stands(dims, at)), None)

    def blocked(self, dims: Sequence[int], at: int = 0) -> tuple[int, ...]:
        """Dimensions of a block of an array in which the batch begins at one of its dimensions.

        Raises:
            Entangled: it does not.
        """
        if not self.stands(dims, at):
            raise Entangled
        return (*dims[:at], self.block, *dims[at + self.rank :])

    def axis(self, axis: int, at: int = 0) -> int:
        """The dimension of a block that was this one of an array in which the batch begins at `at`.

        Raises:
            Entangled: it is one of the batch's own.
        """
        if at <= axis < at + self.rank:
            raise Entangled
        return axis if axis < at else axis - self.rank + 1

    def own(self, at: int) -> tuple[int, ...]:
        """The dimensions of an array that are the batch."""
        return tuple(range(at, at + self.rank))


@dataclass(frozen=True)
class Value:
    """A value while blocks are computed.

    Attributes:
        array: a block of an array of the batch, or a shared array as it is.
        at: the dimension of the block; None for a shared array.
    """

    array: Any
    at: int | None
