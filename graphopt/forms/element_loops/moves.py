"""Equations that move or join what belongs to one element of a batch: their parameters for a block of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from graphopt.forms.element_loops.batch import Batch, Entangled

Params = dict[str, Any]

Moved = tuple[Params, int]
"""Parameters for a block, and the dimension of the block in the result."""


def spread_shared(params: Params, batch: Batch) -> Moved | None:
    """One value for all elements of a batch; None where the result cannot be one of the batch."""
    shape, kept = params["shape"], params["broadcast_dimensions"]
    at = batch.found(shape)
    if at is None or set(batch.own(at)) & set(kept):
        return None
    axes = tuple(batch.axis(axis, at) for axis in kept)
    return {**params, "shape": batch.blocked(shape, at), "broadcast_dimensions": axes}, at


def look_up(params: Params, batch: Batch, rank: int) -> Moved:
    """Elements of a shared array at places that belong to the batch, which comes first there.

    Args:
        params: of the ``gather``.
        batch: the batch.
        rank: dimensions of the result.

    Raises:
        Entangled: the batch does not stand together in the result.
    """
    numbers = params["dimension_numbers"]
    others = tuple(axis for axis in range(rank) if axis not in numbers.offset_dims)
    at = others[0] if others else 0
    if numbers.start_indices_batching_dims or others[: batch.rank] != batch.own(at):
        raise Entangled
    offsets = tuple(batch.axis(axis, at) for axis in numbers.offset_dims)
    return {**params, "dimension_numbers": numbers._replace(offset_dims=offsets)}, at


def _broadcast(params: Params, batch: Batch, at: int) -> Moved:
    kept = params["broadcast_dimensions"]
    to = kept[at]
    if tuple(kept[at : at + batch.rank]) != batch.own(to):
        raise Entangled
    axes = [*kept[:at], to, *kept[at + batch.rank :]]
    axes = [axis if axis == to else batch.axis(axis, to) for axis in axes]
    shape = batch.blocked(params["shape"], to)
    return {**params, "shape": shape, "broadcast_dimensions": tuple(axes)}, to


def _without(name: str) -> Callable[[Params, Batch, int], Moved]:
    def moved(params: Params, batch: Batch, at: int) -> Moved:
        axes = params[name]
        gone = tuple(batch.axis(axis, at) for axis in axes)
        return {**params, name: gone}, at - sum(axis < at for axis in axes)

    return moved


def _reshape(params: Params, batch: Batch, at: int) -> Moved:
    if at or params["dimensions"] is not None:
        raise Entangled
    return {**params, "new_sizes": batch.blocked(params["new_sizes"])}, 0


def _rev(params: Params, batch: Batch, at: int) -> Moved:
    return {
        **params,
        "dimensions": tuple(batch.axis(axis, at) for axis in params["dimensions"]),
    }, at


def _slice(params: Params, batch: Batch, at: int) -> Moved:
    starts, limits = params["start_indices"], params["limit_indices"]
    strides = params["strides"] or (1,) * len(starts)
    own = slice(at, at + batch.rank)
    if any(starts[own]) or set(strides[own]) != {1}:
        raise Entangled
    rest = slice(at + batch.rank, None)
    moved = {
        "start_indices": (*starts[:at], 0, *starts[rest]),
        "limit_indices": batch.blocked(limits, at),
        "strides": (*strides[:at], 1, *strides[rest]),
    }
    return {**params, **moved}, at


def _concatenate(params: Params, batch: Batch, at: int) -> Moved:
    return {**params, "dimension": batch.axis(params["dimension"], at)}, at


def _stack(params: Params, batch: Batch, at: int) -> Moved:
    axis = params["axis"]
    if axis <= at:
        return params, at + 1
    if axis < at + batch.rank:
        raise Entangled
    return {**params, "axis": axis - batch.rank + 1}, at


def _transpose(params: Params, batch: Batch, at: int) -> Moved:
    order: Sequence[int] = tuple(params["permutation"])
    to = order.index(at)
    if order[to : to + batch.rank] != batch.own(at):
        raise Entangled
    order = [axis for axis in order if axis not in batch.own(at)[1:]]
    moved = tuple(axis if axis == at else batch.axis(axis, at) for axis in order)
    return {**params, "permutation": moved}, to


MOVES: Final[dict[str, Callable[[Params, Batch, int], Moved]]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "reduce_and": _without("axes"),
    "reduce_max": _without("axes"),
    "reduce_min": _without("axes"),
    "reduce_or": _without("axes"),
    "reduce_prod": _without("axes"),
    "reduce_sum": _without("axes"),
    "reshape": _reshape,
    "rev": _rev,
    "slice": _slice,
    "squeeze": _without("dimensions"),
    "stack": _stack,
    "transpose": _transpose,
}
"""Primitive -> what it is for a block; all operands are of the batch, which begins at the same dimension."""
