"""Convolutions of few channels with large windows: shifted arrays, a part of the window in turn."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, Final

import jax.numpy as jnp
from jax import lax

from graphopt.forms.convolutions.arrays import Named, padded
from graphopt.forms.convolutions.geometry import Axis, Convolution
from graphopt.forms.convolutions.methods.shifts import shifts

TERMS_PER_TURN: Final = 64
"""Products with shifted arrays in the code of the loop: more take longer to compile, and are no faster."""


def part_of(conv: Convolution) -> tuple[int, Convolution]:
    """How many turns it takes, and the convolution of one: of a part of the window along the first axis.

    Its input is padded already.
    """
    first, *others = conv.axes
    beside = prod(axis.window for axis in others) * conv.inputs
    window = max(1, min(first.window, TERMS_PER_TURN // beside))
    turns = -(-first.window // window)
    axes = (_padded(replace(first, window=window)), *map(_padded, others))
    return turns, replace(conv, axes=axes)


def shifts_in_turn(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """Adds up what one part of the window after the other gives."""
    turns, part = part_of(conv)
    step, span = part.axes[0].window, part.axes[0].size
    spread = conv.axes[0].spread
    missing = turns * step - conv.axes[0].window
    x = padded(conv, x, {"0": missing * spread})
    at, along = x.names.index("0"), weights.names.index("0")
    config = [(0, missing if n == "0" else 0, 0) for n in weights.names]
    taps = lax.pad(weights.array, jnp.zeros((), weights.array.dtype), config)

    def turn(number: Any) -> Named:
        own = lax.dynamic_slice_in_dim(x.array, number * step * spread, span, at)
        row = lax.dynamic_slice_in_dim(taps, number * step, step, along)
        return shifts(part, Named(own, x.names), Named(row, weights.names), precision)

    first = turn(0)
    total = lax.fori_loop(1, turns, lambda n, array: array + turn(n).array, first.array)
    return Named(total, first.names)


def _padded(axis: Axis) -> Axis:
    """The dimension of an input that has all its zeros, and no more elements than results read."""
    return replace(axis, size=axis.reach, before=0)
