"""Convolutions with few results and large windows (gradients by weights), as matrix products."""

from __future__ import annotations

from typing import Any

from graphopt.forms.convolutions.arrays import Named, contract, padded, views
from graphopt.forms.convolutions.geometry import Convolution


def window_products(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """What all results read side by side, and one product for each group."""
    if conv.groups == 1:
        x, weights = x.without("g"), weights.without("g")
    together = "g" if conv.groups > 1 else ""
    summed = "".join(n for n in weights.names if n not in "go")
    read = views(conv, padded(conv, x), "t").ordered(f"{together}tn{summed}")
    weights = weights.ordered(f"{together}{summed}o")
    found = contract(read, weights, summed, together, precision)
    shape = [conv.count(n) for n in together + conv.digits + "no"]
    return Named(found.array.reshape(shape), f"{together}{conv.digits}no")
