"""Convolutions along three dimensions and more, as ones along two: XLA's library is fast for those only.

What a window reads along one dimension becomes more input channels, the results along it more of the batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from graphopt.forms.convolutions.arrays import Named, padded
from graphopt.forms.convolutions.geometry import Axis, Convolution
from graphopt.forms.convolutions.methods.library import library


def folded(conv: Convolution) -> tuple[int, Convolution]:
    """The dimension that is read as channels, and the convolution along the others.

    The one along which the fewest elements are written, and of several the outermost.
    """
    number = min(range(len(conv.axes)), key=lambda n: _written(conv.axes[n]))
    axis = conv.axes[number]
    return number, replace(
        conv,
        axes=conv.axes[:number] + conv.axes[number + 1 :],
        batch=conv.batch * axis.results,
        inputs=conv.inputs * axis.window,
        input_names=_without(conv.input_names, number),
        window_names=_without(conv.window_names, number),
        result_names=_without(conv.result_names, number),
    )


def planes(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """One dimension after the other becomes channels, until there are two."""
    if len(conv.axes) <= 2:
        return library(conv, x, weights, precision)
    number, flat = folded(conv)
    axis, name, others = conv.axes[number], str(number), conv.digits.replace(str(number), "")
    read = _read_along(conv, x, number)
    weights = weights.ordered(f"{others}g{name}io")
    batch = Named(read.reshape(flat.batch, *read.shape[2:]), f"n{flat.digits}gi")
    shape = weights.array.shape
    channels = weights.array.reshape(*shape[:-3], shape[-3] * shape[-2], shape[-1])
    found = planes(flat, batch, Named(channels, f"{flat.digits}gio"), precision)
    found = found.ordered(f"n{flat.digits}go")
    array = found.array.reshape(conv.batch, axis.results, *found.array.shape[1:])
    return Named(array, f"n{name}{others}go").ordered(f"n{conv.digits}go")


def _read_along(conv: Convolution, x: Named, number: int) -> Any:
    """What results read along one dimension, as channels: [n, results, other dimensions, g, window * i]."""
    axis, name, others = conv.axes[number], str(number), conv.digits.replace(str(number), "")
    alone = replace(
        conv, axes=tuple(a if n == number else _whole(a) for n, a in enumerate(conv.axes))
    )
    x = padded(alone, x)
    if axis.window <= axis.results:
        x = x.ordered(f"n{name}{others}gi")
        steps = range(0, axis.window * axis.spread, axis.spread)
        taken = [_every(x, name, start, axis.results, axis.stride) for start in steps]
        return jnp.concatenate(taken, -1)
    x = x.ordered(f"n{others}g{name}i")
    starts = range(0, axis.results * axis.stride, axis.stride)
    rows = [_every(x, name, start, axis.window, axis.spread) for start in starts]
    return jnp.stack([row.reshape(*row.shape[:-2], -1) for row in rows], 1)


def _every(x: Named, name: str, start: int, count: int, step: int) -> Any:
    """So many elements along a dimension, so far apart."""
    stop = start + (count - 1) * step + 1
    return lax.slice_in_dim(x.array, start, stop, step, x.names.index(name))


def _whole(axis: Axis) -> Axis:
    """A dimension that is left as it is."""
    return Axis(axis.size, 1, axis.size, 1, 0, 1, 1)


def _written(axis: Axis) -> float:
    """Elements for each one that is read."""
    return axis.results * axis.window / max(axis.size, 1)


def _without(names: str, number: int) -> str:
    """Names of dimensions, one of them gone and later ones moved up."""
    moved = {str(n): str(n - (n > number)) for n in range(10) if n != number}
    return "".join(moved.get(n, n) for n in names if n != str(number))
