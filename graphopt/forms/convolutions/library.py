"""Convolutions by XLA itself, of parts that it computes well."""

from __future__ import annotations

from typing import Any

from jax import lax

from graphopt.forms.convolutions.arrays import Named, cut_input
from graphopt.forms.convolutions.geometry import Convolution


def library(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """One group, without holes, as a convolution of its own."""
    x, weights = x.without("g"), weights.without("g")
    digits = "".join(str(number) for number in range(len(conv.axes)))
    result_names = "n" + digits + "o" if x.names.endswith("i") else "no" + digits
    numbers = lax.ConvDimensionNumbers(
        tuple(x.names.index(n) for n in "ni" + digits),
        tuple(weights.names.index(n) for n in "oi" + digits),
        tuple(result_names.index(n) for n in "no" + digits),
    )
    x, room = cut_input(conv, x)
    array = lax.conv_general_dilated(
        x.array,
        weights.array,
        [a.stride for a in conv.axes],
        room,
        rhs_dilation=[a.spread for a in conv.axes],
        dimension_numbers=numbers,
        precision=precision,
    )
    return Named(array, result_names)
