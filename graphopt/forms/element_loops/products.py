"""Small products of what belongs to each element of a batch: as multiplications and sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import jax.numpy as jnp

from graphopt.forms.element_loops.batch import Batch, Entangled, Value

LARGEST: Final = 64
"""Multiplications for one element of the batch."""


def product(left: Value, right: Value, equation: Any, batch: Batch) -> Value:
    """A ``dot_general`` for a block.

    Raises:
        Entangled: it is large, of another type than its operands, or sums over the batch.
    """
    contracted, joined = equation.params["dimension_numbers"]
    dtype = equation.outvars[0].aval.dtype
    sides = (left, right)
    wanted: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if left.at is not None and right.at is not None:
        wanted = (batch.own(left.at), batch.own(right.at))
    if (tuple(joined[0]), tuple(joined[1])) != wanted:
        raise Entangled
    if any(side.array.dtype != dtype for side in sides) or dtype.kind != "f":
        raise Entangled
    parts = [_ordered(side, axes, batch) for side, axes in zip(sides, contracted, strict=True)]
    (x, own), (y, others) = parts
    sums = len(contracted[0])
    if prod(x.shape[1:]) * prod(y.shape[1 : 1 + others]) > LARGEST:
        raise Entangled
    # [block, free dimensions of the left, of the right, contracted]
    x = jnp.expand_dims(x, tuple(range(1 + own, 1 + own + others)))
    y = jnp.expand_dims(y, tuple(range(1, 1 + own)))
    made = jnp.sum(x * y, tuple(range(1 + own + others, 1 + own + others + sums)))
    at = _place(left, right, contracted, own)
    return Value(jnp.moveaxis(made, 0, at), at)


def _ordered(side: Value, contracted: Sequence[int], batch: Batch) -> tuple[Any, int]:
    """[block, free dimensions, contracted], and the number of free ones; a shared array as a block of one."""
    x = side.array
    if side.at is None:
        axes = list(contracted)
        x = jnp.moveaxis(x, axes, range(x.ndim - len(axes), x.ndim))[None]
    else:
        axes = [batch.axis(axis, side.at) for axis in contracted]
        free = [axis for axis in range(x.ndim) if axis not in (side.at, *axes)]
        x = jnp.transpose(x, (side.at, *free, *axes))
    return x, x.ndim - 1 - len(axes)


def _place(left: Value, right: Value, contracted: Any, own: int) -> int:
    """The dimension of the block among the free ones, where only one side has it; else the first."""
    if left.at is not None and right.at is not None:
        return 0
    if left.at is not None:
        return left.at - len([axis for axis in contracted[0] if axis < left.at])
    assert right.at is not None  # one of them is of the batch
    return own + right.at - len([axis for axis in contracted[1] if axis < right.at])
