"""Dilated inputs without their zeros: one convolution per phase of the result, interleaved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from graphopt.forms.convolutions.arrays import Named, kept
from graphopt.forms.convolutions.geometry import Convolution

Method = Callable[[Convolution, Named, Named, Any], Named]
"""Computes a convolution without holes: (geometry, input, weights, precision) -> result."""


def by_phases(method: Method, conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """A convolution of any kind by a method for those without holes."""
    if not conv.holes:
        return method(conv, x, weights, precision)
    parts = [(numbers, part, places) for numbers, part, places in conv.parts() if part is not None]
    if not parts:
        names = conv.result_names
        shape = [conv.count(n) for n in names]
        return Named(jnp.zeros(shape, x.array.dtype), names)
    x, room = _padded_once(x, [part for _, part, _ in parts])
    found: dict[tuple[int, ...], Named] = {}
    for numbers, part, places in parts:
        own = weights.cut({str(number): place for number, place in enumerate(places)})
        found[numbers] = method(_in_room(part, room), x, own, precision)
    names = next(iter(found.values())).names
    for number in reversed(range(len(conv.axes))):
        found = _joined(conv, number, names, found)
    return Named(found[()].array, names)


def _padded_once(x: Named, parts: Sequence[Convolution]) -> tuple[Named, list[tuple[int, int]]]:
    """The input with the zeros that any of the convolutions needs; how many in front and behind."""
    room = []
    for axes in zip(*(part.axes for part in parts), strict=True):
        behind = max(axis.reach - axis.size - axis.before for axis in axes)
        room.append((max(0, *(axis.before for axis in axes)), max(0, behind)))
    config = [(*room[int(name)], 0) if name.isdigit() else (0, 0, 0) for name in x.names]
    if any(map(any, config)):
        x = x.map(lambda array: kept(lax.pad(array, jnp.zeros((), array.dtype), config)))
    return x, room


def _in_room(part: Convolution, room: Sequence[tuple[int, int]]) -> Convolution:
    """The convolution on an input that has zeros around it."""
    axes = tuple(
        replace(axis, size=axis.size + front + behind, before=axis.before - front)
        for axis, (front, behind) in zip(part.axes, room, strict=True)
    )
    return replace(part, axes=axes)


def _joined(
    conv: Convolution, number: int, names: str, found: dict[tuple[int, ...], Named]
) -> dict[tuple[int, ...], Named]:
    """Results whose phases along the last axis are interleaved."""
    axis, at = conv.axes[number], names.index(str(number))
    joined: dict[tuple[int, ...], Named] = {}
    for head in dict.fromkeys(numbers[:-1] for numbers in found):
        own = {n[-1]: found[n].array for n in found if n[:-1] == head}
        array = _interleaved(own, axis.phases, at)
        joined[head] = Named(lax.slice_in_dim(array, 0, axis.results, axis=at), names)
    return joined


def _interleaved(own: dict[int, Any], phases: int, at: int) -> Any:
    """Arrays that take turns along a dimension; zeros where one is missing."""
    some = next(iter(own.values()))
    if len(own) == 1:
        (number,) = own
        config = [(0, 0, 0)] * some.ndim
        config[at] = (number, phases - 1 - number, phases - 1)
        return lax.pad(some, jnp.zeros((), some.dtype), config)
    blank = jnp.zeros(some.shape, some.dtype)
    stacked = jnp.stack([own.get(number, blank) for number in range(phases)], at + 1)
    return stacked.reshape(*some.shape[:at], -1, *some.shape[at + 1 :])
