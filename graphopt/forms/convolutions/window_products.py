"""Convolutions with few results and large windows (gradients by weights), as matrix products."""

from __future__ import annotations

from itertools import product
from typing import Any

from jax import lax

from graphopt.forms.convolutions.arrays import Named, contract, padded, result_slices
from graphopt.forms.convolutions.geometry import Convolution


def window_columns(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """What all results read side by side, and one product."""
    x, weights = padded(conv, x.without("g")), weights.without("g")
    names = weights.names.replace("o", "")
    rows = x.ordered(names + "n")
    wide = [rows.cut(result_slices(conv, place)).array for place in _places(conv)]
    side = Named(lax.concatenate(wide, len(names)), names + "n")
    found = contract(side, weights, names, "", precision).array
    return _result(conv, found.reshape(len(wide), conv.batch, conv.outputs), "no")


def _places(conv: Convolution) -> list[tuple[int, ...]]:
    return list(product(*(range(axis.results) for axis in conv.axes)))


def _result(conv: Convolution, found: Any, names: str) -> Named:
    digits = "".join(str(number) for number in range(len(conv.axes)))
    shape = [axis.results for axis in conv.axes]
    return Named(found.reshape(*shape, *found.shape[1:]), digits + names)
