"""Convolutions with few results and large windows (gradients by weights), as matrix products."""

from __future__ import annotations

from typing import Any

from jax import lax

from graphopt.forms.convolutions.arrays import MOST_AT_ONCE, Named, contract, padded, views
from graphopt.forms.convolutions.geometry import Convolution


def window_products(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """What all results read side by side, and one product for each group; large ones in turn."""
    if conv.groups == 1:
        return _product(conv, x.without("g"), weights.without("g"), "", precision)
    if conv.places * conv.padded * conv.itemsize <= MOST_AT_ONCE:
        return _product(conv, x, weights, "g", precision)
    x, weights = (a.ordered("g" + a.names.replace("g", "")) for a in (x, weights))

    def one(pair: tuple[Any, Any]) -> Any:
        first, second = Named(pair[0], x.names[1:]), Named(pair[1], weights.names[1:])
        return _product(conv, first, second, "", precision).array

    return Named(lax.map(one, (x.array, weights.array)), f"g{conv.digits}no")


def _product(conv: Convolution, x: Named, weights: Named, together: str, precision: Any) -> Named:
    """Of one group, or of those along a dimension ``together``."""
    summed = "".join(n for n in weights.names if n not in "go")
    read = views(conv, padded(conv, x), "t").ordered(f"{together}tn{summed}")
    weights = weights.ordered(f"{together}{summed}o")
    found = contract(read, weights, summed, together, precision)
    shape = [conv.count(n) for n in together + conv.digits + "no"]
    return Named(found.array.reshape(shape), f"{together}{conv.digits}no")
