"""Convolutions whose window has one element, as matrix products."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

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


def _channels_first(conv: Convolution) -> bool:
    names = [n for n in conv.input_names if n != "g"]
    return names[:2] == ["n", "i"] and conv.result_names.replace("g", "")[:2] == "no"
