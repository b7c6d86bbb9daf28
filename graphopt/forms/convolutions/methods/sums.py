"""Gradients of depthwise convolutions by their weights: sums over products with shifted arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Final

import jax.numpy as jnp
from jax import lax

from graphopt.forms.convolutions.arrays import MOST_AT_ONCE, Named, kept, padded, views
from graphopt.forms.convolutions.geometry import Convolution
from graphopt.forms.convolutions.methods.shifts import MIN_ROW

MAX_PARTS: Final = 8
"""Chunks of a dimension that are added elementwise, before what is left is reduced; more gain a tenth, and
take twice as long to compile."""


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
    """Chunks of products added elementwise, for all results at once; then one reduction."""
    x, weights = x.without("n"), weights.without("o")
    names = _work_names(conv, weights.names)
    fold = folded(conv, names)
    spread = conv.axes[int(fold.name)].spread if fold.name.isdigit() else 1
    x = padded(conv, x.ordered(names), {fold.name: fold.missing * spread})
    weights = weights.ordered(names)
    config = [(0, fold.missing if n == fold.name else 0, 0) for n in names]
    array = lax.pad(weights.array, jnp.zeros((), weights.array.dtype), config)
    weights = Named(kept(array), names)
    first = conv.axes[0]
    if first.results == 1 or conv.places * conv.padded * conv.itemsize <= MOST_AT_ONCE * fold.parts:
        total = _totals(conv, fold, x, weights)
    else:
        row = replace(conv, axes=(replace(first, results=1), *conv.axes[1:]))
        at = names.index("0")
        span = x.array.shape[at] - (first.results - 1) * first.stride

        def one(start: Any) -> Any:
            part = x.map(lambda array: lax.dynamic_slice_in_dim(array, start, span, at))
            return _totals(row, fold, part, weights)

        total = lax.map(one, jnp.arange(first.results) * first.stride)
    return Named(total.reshape(*(a.results for a in conv.axes), conv.groups), conv.digits + "g")


def _totals(conv: Convolution, fold: Fold, x: Named, weights: Named) -> Any:
    """[results, groups] sums, from inputs whose folded dimension is a whole number of chunks."""
    read, terms = views(conv, x, "t"), []
    for begin in range(0, fold.parts * fold.chunk, fold.chunk):
        chunk = {fold.name: slice(begin, begin + fold.chunk)}
        terms.append(read.cut(chunk).array * weights.cut(chunk).array)
    added = kept(reduce(add, terms))
    return jnp.sum(added, [at for at, n in enumerate(read.names) if n not in "tg"])


def folded(conv: Convolution, names: str) -> Fold:
    """The longest dimension that is summed, in chunks; the last one only where there is no other."""
    summed = [n for n in names[:-1] if n != "g" and conv.count(n, "window") >= MAX_PARTS]
    summed = summed or [n for n in names if n != "g"]
    name = max(summed, key=lambda n: conv.count(n, "window"))
    size = conv.count(name, "window")
    even = [p for p in range(MAX_PARTS // 2 + 1, MAX_PARTS + 1) if size % p == 0]
    if even or size <= MAX_PARTS:
        parts = max(even, default=size)
        return Fold(name, parts, size // parts, 0)
    chunk = -(-size // MAX_PARTS)
    parts = -(-size // chunk)
    return Fold(name, parts, chunk, parts * chunk - size)


def _work_names(conv: Convolution, names: str) -> str:
    last = names[-1]
    if last == "g" or (last.isdigit() and conv.axes[int(last)].window >= MIN_ROW):
        return names
    return names.replace("g", "") + "g"
