"""Convolutions of few input channels per group: shifted arrays, each times a row of weights, added up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Any, Final

from jax import lax

from graphopt.forms.convolutions.arrays import Named, kept, padded, window_slices
from graphopt.forms.convolutions.geometry import Convolution

MIN_ROW: Final = 16
"""Loops over shorter rows of a spatial dimension do not vectorise: channels are brought to the end."""

TERMS_IN_TURN: Final = 9
"""So many multiply-adds may wait for each other: the processor takes up the next element meanwhile."""

MOST_COMPUTED_ANEW: Final = 12
"""Sums of more products are made before what reads them: XLA would compute them again for every reader.

Those of a single group always are, as XLA's own convolution is: what reduces them would be scalar code.
"""

MAX_CHAINS: Final = 4
"""Sums that are added up side by side: more only take registers."""


def shifts(conv: Convolution, x: Named, weights: Named, _precision: Any) -> Named:
    """Pads once, and adds up one product per element of the window and input channel."""
    if conv.groups == 1:
        x, weights = x.without("g"), weights.without("g")
    if conv.inputs == 1:
        x, weights = x.without("i"), weights.without("i")
    if conv.outputs == 1:
        weights = weights.without("o")
    names = "".join(n for n in work_names(conv) if n in x.names + weights.names)
    rows = "".join(n for n in names if n in x.names)
    last = rows[-1] == "g"
    if conv.inputs > 1:
        rows = rows + "i" if last else rows[:-1] + "i" + rows[-1:]
    x = x.ordered(rows)
    repeated = names.endswith("go") and conv.outputs < MIN_ROW and conv.inputs == 1
    if repeated:
        x, weights, names = _repeated(x, conv.outputs), _merged(weights), names[:-1]
    elif last:
        weights = _rows_of_weights(weights, names)
    x = padded(conv, x)
    sizes = {n: conv.count("go" if repeated and n == "g" else n) for n in names}
    parts = []
    for *place, channel in product(*(range(a.window) for a in conv.axes), range(conv.inputs)):
        row = weights.at({"i": channel, **{str(number): k for number, k in enumerate(place)}})
        part = x.at({"i": channel}, window_slices(conv, place))
        parts.append(lax.mul(part.spread_to(sizes), row.spread_to(sizes)))
    array = added(parts)
    if len(parts) > MOST_COMPUTED_ANEW or conv.groups == 1:
        array = kept(array)
    if repeated:
        array, names = array.reshape(*array.shape[:-1], conv.groups, conv.outputs), names + "o"
    if names != "".join(n for n in conv.result_names if n in names):
        array = kept(array)
    return Named(array, names)


def added(terms: Sequence[Any]) -> Any:
    """The sum of many terms, as a few sums that do not wait for each other."""
    chains = max(1, min(MAX_CHAINS, len(terms) // TERMS_IN_TURN))
    return reduce(lax.add, [reduce(lax.add, terms[first::chains]) for first in range(chains)])


def work_names(conv: Convolution) -> str:
    """Dimensions of the result in the order in which it is computed."""
    names = conv.result_names
    if names[-1].isdigit() and conv.axes[int(names[-1])].results < MIN_ROW:
        return "".join(n for n in names if n not in "go") + "go"
    narrow = conv.groups == 1 and names == "n0go" and 1 < conv.outputs < MIN_ROW
    if narrow and conv.axes[0].results >= MIN_ROW and conv.axes[0].stride == 1:
        return "ngo0"
    return names


def turned(conv: Convolution) -> bool:
    """Whether channels stand in front, and rows are too short or too far apart to work along them."""
    last = conv.result_names[-1]
    return last.isdigit() and (
        conv.axes[int(last)].results < MIN_ROW or conv.axes[int(last)].stride > 1
    )


def _rows_of_weights(weights: Named, names: str) -> Named:
    """Weights whose last dimensions are those of the result: other rows are read element by element."""
    last = "".join(n for n in names if n in weights.names)
    order = "".join(n for n in weights.names if n not in last) + last
    long = [n for n in order if weights.size(n) > 1]
    moved = long != [n for n in weights.names if n in long]
    return weights.ordered(order).map(kept) if moved else weights.ordered(order)


def _repeated(x: Named, times: int) -> Named:
    """Every channel so many times: ``g`` is the last dimension."""
    shape = (*x.array.shape, times)
    array = lax.broadcast_in_dim(x.array, shape, range(len(shape) - 1))
    return Named(array.reshape(*x.array.shape[:-1], -1), x.names)


def _merged(weights: Named) -> Named:
    """Groups and outputs as one dimension ``g``."""
    weights = weights.ordered("".join(n for n in weights.names if n not in "go") + "go")
    return Named(weights.array.reshape(*weights.array.shape[:-2], -1), weights.names[:-1])
