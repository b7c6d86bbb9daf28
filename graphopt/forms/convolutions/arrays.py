"""Arrays whose dimensions have names, so that a convolution is written once for all layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.convolutions.geometry import Axis, Convolution

MOST_AT_ONCE: Final = 1 << 26
"""Bytes of what results read, or of their sums, that are in memory at the same time."""


@dataclass(frozen=True)
class Named:
    """An array and one letter per dimension.

    Attributes:
        array: of jax.
        names: in the order of its dimensions.
    """

    array: Any
    names: str

    def size(self, name: str) -> int:
        """Elements along a dimension."""
        return int(self.array.shape[self.names.index(name)])

    def ordered(self, names: str) -> Named:
        """The same dimensions in another order."""
        if names == self.names:
            return self
        return Named(jnp.transpose(self.array, [self.names.index(n) for n in names]), names)

    def without(self, name: str) -> Named:
        """Without a dimension of one element."""
        at = self.names.index(name)
        return Named(lax.squeeze(self.array, (at,)), self.names.replace(name, ""))

    def cut(self, places: dict[str, slice]) -> Named:
        """Slices along some dimensions; names that the array lacks are passed over."""
        spans = [
            places.get(name, slice(None)).indices(size)
            for name, size in zip(self.names, self.array.shape, strict=True)
        ]
        return Named(lax.slice(self.array, *zip(*spans, strict=True)), self.names)

    def at(self, places: dict[str, int], others: dict[str, slice] | None = None) -> Named:
        """One element along some dimensions, which are gone then, and slices along others (see `cut`)."""
        part = self.cut({name: slice(k, k + 1) for name, k in places.items()} | (others or {}))
        gone = [i for i, name in enumerate(self.names) if name in places]
        return Named(
            lax.squeeze(part.array, gone), "".join(n for n in self.names if n not in places)
        )

    def spread_to(self, sizes: dict[str, int]) -> Any:
        """The array repeated along the dimensions that it lacks, in the order of the sizes."""
        own = self.ordered("".join(n for n in sizes if n in self.names))
        at = [i for i, n in enumerate(sizes) if n in self.names]
        return lax.broadcast_in_dim(own.array, tuple(sizes.values()), at)

    def map(self, change: Callable[[Any], Any]) -> Named:
        """The same names on another array of the same dimensions."""
        return Named(change(self.array), self.names)


def named_operands(conv: Convolution, operands: Sequence[Any]) -> tuple[Named, Named]:
    """The input and the weights, groups apart."""
    x = Named(_split(operands[0], conv, conv.input_names, "input"), conv.input_names)
    return x, Named(_split(operands[1], conv, conv.window_names, "window"), conv.window_names)


def plain_result(conv: Convolution, result: Named, shape: tuple[int, ...]) -> Any:
    """The array of a result as the operation returns it."""
    missing = [n for n in conv.result_names if n not in result.names]
    array = lax.expand_dims(result.array, range(len(missing)))
    return (
        Named(array, "".join(missing) + result.names)
        .ordered(conv.result_names)
        .array.reshape(shape)
    )


def padded(conv: Convolution, x: Named, more: dict[str, int] | None = None) -> Named:
    """The input with the zeros around it that results depend on, kept apart from what makes it.

    Without the barrier XLA computes the input anew for each element of the window.

    Args:
        conv: whose axes say how many zeros.
        x: the input.
        more: zeros beyond those, at the end of some dimensions.
    """
    more = more or {}
    own, room = cut_input(conv, x)
    config = [(0, more.get(name, 0), 0) for name in x.names]
    for number, (before, after) in enumerate(room):
        at = x.names.index(str(number))
        config[at] = (before, after + config[at][1], 0)
    if not any(map(any, config)):
        return cut_input(conv, x.map(kept))[0]
    return own.map(lambda array: kept(lax.pad(array, jnp.zeros((), array.dtype), config)))


def window_slices(conv: Convolution, place: Sequence[int]) -> dict[str, slice]:
    """Where all results read the padded input for one element of the window."""
    return {
        str(number): slice(
            k * axis.spread, k * axis.spread + (axis.results - 1) * axis.stride + 1, axis.stride
        )
        for number, (axis, k) in enumerate(zip(conv.axes, place, strict=True))
    }


def views(conv: Convolution, x: Named, name: str) -> Named:
    """What every result reads of the padded input; the first dimension, of results, gets the name.

    One gather: slices of their own would be a kernel for each result.
    """
    at = [x.names.index(digit) for digit in conv.digits]
    sizes, steps = list(x.array.shape), [1] * (1 + x.array.ndim)
    for place, axis in zip(at, conv.axes, strict=True):
        sizes[place] -= (axis.results - 1) * axis.stride
        steps[1 + place] = axis.spread
    starts = np.indices([axis.results for axis in conv.axes], np.int32).reshape(len(at), -1).T
    numbers = lax.GatherDimensionNumbers(tuple(range(1, 1 + x.array.ndim)), (), tuple(at))
    array = lax.gather(
        x.array,
        starts * np.array([axis.stride for axis in conv.axes], np.int32),
        numbers,
        sizes,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )
    return Named(lax.slice(array, [0] * array.ndim, array.shape, steps), name + x.names)


def contract(
    a: Named, b: Named, summed: str, together: str, precision: Any, **options: Any
) -> Named:
    """A product of arrays: sums over some names, others stand in both and in the result."""

    def places(of: Named, names: str) -> list[int]:
        return [of.names.index(n) for n in names]

    dims = ((places(a, summed), places(b, summed)), (places(a, together), places(b, together)))
    array = lax.dot_general(a.array, b.array, dims, precision=precision, **options)
    gone = summed + together
    free = [n for n in a.names if n not in gone] + [n for n in b.names if n not in gone]
    return Named(array, together + "".join(free))


def kept(array: Any) -> Any:
    """The array, made before what reads it."""
    barrier: Any = lax.optimization_barrier
    return barrier(array)


def _split(array: Any, conv: Convolution, names: str, of: str) -> Any:
    return array.reshape([conv.count(name, of) for name in names])


def cut_input(conv: Convolution, x: Named) -> tuple[Named, list[tuple[int, int]]]:
    """The elements of the input that results depend on, and how many zeros belong around them."""
    places, room = {}, []
    for number, axis in enumerate(conv.axes):
        start, stop, before, after = _room(axis)
        places[str(number)] = slice(start, stop)
        room.append((before, after))
    return x.cut(places), room


def _room(axis: Axis) -> tuple[int, int, int, int]:
    """Which elements of the input are kept, and how many zeros stand before and after them."""
    after = axis.reach - axis.size - axis.before
    start, stop = max(-axis.before, 0), axis.size + min(after, 0)
    if start >= stop:
        return 0, 0, axis.reach, 0
    return start, stop, max(axis.before, 0), max(after, 0)
