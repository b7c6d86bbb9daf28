"""Gradients of depthwise convolutions by their weights: sums over products with shifted arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from operator import add
from typing import Any, Final

import jax.numpy as jnp
from jax import lax

from graphopt.forms.convolutions.arrays import Named, kept, padded, result_slices
from graphopt.forms.convolutions.geometry import Convolution
from graphopt.forms.convolutions.shifts import MIN_ROW

MAX_TERMS: Final = 144
"""Products in the code of one loop."""

MAX_PARTS: Final = 8
"""Chunks of a dimension that are added elementwise, before what is left is reduced; more gain a tenth, and
take twice as long to compile."""

MAX_RESULTS: Final = 16
"""Results whose sums stand in the code of one loop; rows of more come from a loop over them."""


@dataclass(frozen=True)
class Fold:
    """A dimension in chunks, which are added elementwise: that vectorises where a reduction does not.

    Attributes:
        name: the dimension.
        parts: number of chunks.
        chunk: elements of each.
        missing: zeros that fill the last one.
    """

    name: str
    parts: int
    chunk: int
    missing: int


def sums(conv: Convolution, x: Named, weights: Named, _precision: Any) -> Named:
    """Chunks of products added elementwise, for all results in one loop; then one reduction."""
    x, weights = x.without("n"), weights.without("o")
    names = _work_names(conv, weights.names)
    fold = folded(conv, names)
    spread = conv.axes[int(fold.name)].spread if fold.name.isdigit() else 1
    x = padded(conv, x.ordered(names), {fold.name: fold.missing * spread})
    weights = weights.ordered(names)
    config = [(0, fold.missing if n == fold.name else 0, 0) for n in names]
    array = lax.pad(weights.array, jnp.zeros((), weights.array.dtype), config)
    weights = Named(kept(array), names)
    if not looped(conv):
        return _all_results(conv, fold, x, weights)
    first, row = (
        conv.axes[0],
        replace(conv, axes=(replace(conv.axes[0], results=1), *conv.axes[1:])),
    )
    at = names.index("0")
    span = x.array.shape[at] - (first.results - 1) * first.stride

    def body(_: None, start: Any) -> tuple[None, Any]:
        rows = lax.dynamic_slice_in_dim(x.array, start, span, at)
        return None, _all_results(row, fold, Named(rows, names), weights).array

    starts = jnp.arange(first.results) * first.stride
    found = lax.scan(body, None, starts)[1]
    return Named(lax.squeeze(found, (1,)), _result_names(conv))


def looped(conv: Convolution) -> bool:
    """Whether results along the first axis come from a loop."""
    return conv.places > MAX_RESULTS and len(conv.axes) > 1 and conv.axes[0].results > 1


def folded(conv: Convolution, names: str) -> Fold:
    """The longest dimension that is summed, in chunks; the last one only where there is no other."""
    results = conv.places // conv.axes[0].results if looped(conv) else conv.places
    most = max(2, min(MAX_PARTS, MAX_TERMS // results))
    summed = [n for n in names[:-1] if n != "g" and conv.count(n, "window") >= most]
    summed = summed or [n for n in names if n != "g"]
    name = max(summed, key=lambda n: conv.count(n, "window"))
    size = conv.count(name, "window")
    even = [p for p in range(most // 2 + 1, most + 1) if size % p == 0]
    if even or size <= most:
        parts = max(even, default=size)
        return Fold(name, parts, size // parts, 0)
    chunk = -(-size // most)
    parts = -(-size // chunk)
    return Fold(name, parts, chunk, parts * chunk - size)


def _work_names(conv: Convolution, names: str) -> str:
    last = names[-1]
    if last == "g" or (last.isdigit() and conv.axes[int(last)].window >= MIN_ROW):
        return names
    return names.replace("g", "") + "g"


def _result_names(conv: Convolution) -> str:
    return "".join(str(number) for number in range(len(conv.axes))) + "g"


def _all_results(conv: Convolution, fold: Fold, x: Named, weights: Named) -> Named:
    """Sums for all results, from inputs whose folded dimension is a whole number of chunks."""
    found = []
    spread = conv.axes[int(fold.name)].spread if fold.name.isdigit() else 1
    for place in product(*(range(axis.results) for axis in conv.axes)):
        places, terms = result_slices(conv, place), []
        for part in range(fold.parts):
            begin = part * fold.chunk
            start = (places[fold.name].start if fold.name.isdigit() else 0) + begin * spread
            stop = start + (fold.chunk - 1) * spread + 1
            row = x.cut({**places, fold.name: slice(start, stop, spread)})
            terms.append(
                row.array * weights.cut({fold.name: slice(begin, begin + fold.chunk)}).array
            )
        found.append(reduce(add, terms))
    stacked = kept(jnp.stack(found))
    group = 1 + x.names.index("g")
    total = jnp.sum(stacked, axis=[d for d in range(1, stacked.ndim) if d != group])
    return Named(
        total.reshape(*(axis.results for axis in conv.axes), conv.groups), _result_names(conv)
    )
