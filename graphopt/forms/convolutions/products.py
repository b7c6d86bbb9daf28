"""Convolutions whose window has few elements, as matrix products."""

from __future__ import annotations

from functools import reduce
from itertools import product
from operator import add
from typing import Any

import jax.numpy as jnp
from jax import lax

from graphopt.forms.convolutions.arrays import Named, contract, padded, window_slices
from graphopt.forms.convolutions.geometry import Convolution


def one_product(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """A window of one element: a product of the channels."""
    places = tuple(0 for _ in conv.axes)
    x = x.without("g")
    if any(axis.reach != axis.size or axis.before for axis in conv.axes):
        x = padded(conv, x)
    x = x.cut(window_slices(conv, places))
    row = weights.without("g").at({str(number): 0 for number in range(len(conv.axes))})
    if not _channels_first(conv):
        return contract(x, row, "i", "", precision)
    if conv.batch == 1:
        return contract(row, x.without("n"), "i", "", precision)
    row = Named(jnp.broadcast_to(row.array[None], (conv.batch, *row.array.shape)), "n" + row.names)
    return contract(row, x, "i", "n", precision)


def shifted_products(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """One product per element of the window, added up."""
    x, weights = padded(conv, _channels_last(x.without("g"))), weights.without("g")
    parts = [
        contract(
            x.cut(window_slices(conv, place)),
            weights.at({str(number): k for number, k in enumerate(place)}),
            "i",
            "",
            precision,
        )
        for place in product(*(range(axis.window) for axis in conv.axes))
    ]
    return Named(reduce(add, [part.array for part in parts]), parts[0].names)


def columns(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """The elements of a window side by side, and one product."""
    x = padded(conv, _channels_last(x.without("g")))
    rows = [
        x.cut(window_slices(conv, place)).array
        for place in product(*(range(axis.window) for axis in conv.axes))
    ]
    wide = Named(lax.concatenate(rows, x.array.ndim - 1), x.names)
    digits = "".join(str(number) for number in range(len(conv.axes)))
    tall = weights.without("g").ordered(digits + "io").array.reshape(-1, conv.outputs)
    return contract(wide, Named(tall, "io"), "i", "", precision)


def _channels_first(conv: Convolution) -> bool:
    names = [n for n in conv.input_names if n != "g"]
    return names[:2] == ["n", "i"] and conv.result_names.replace("g", "")[:2] == "no"


def _channels_last(x: Named) -> Named:
    return x.ordered(x.names.replace("i", "") + "i")
