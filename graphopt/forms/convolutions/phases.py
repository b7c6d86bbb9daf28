"""Dilated inputs without their zeros: one convolution per phase of the result, interleaved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from graphopt.forms.convolutions.arrays import Named
from graphopt.forms.convolutions.geometry import Convolution

Method = Callable[[Convolution, Named, Named, Any], Named]
"""Computes a convolution without holes: (geometry, input, weights, precision) -> result."""


def by_phases(method: Method, conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """A convolution of any kind by a method for those without holes."""
    if not conv.holes:
        return method(conv, x, weights, precision)
    found: dict[tuple[int, ...], Named] = {}
    for numbers, part, places in conv.parts():
        if part is None:
            continue
        own = weights.cut({str(number): place for number, place in enumerate(places)})
        found[numbers] = method(part, x, own, precision)
    if not found:
        names = conv.result_names
        shape = [conv.count(n) for n in names]
        return Named(jnp.zeros(shape, x.array.dtype), names)
    names = next(iter(found.values())).names
    for number in reversed(range(len(conv.axes))):
        found = _joined(conv, number, names, found)
    return Named(found[()].array, names)


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
