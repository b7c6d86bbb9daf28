"""Grouped convolutions as one convolution or product per group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import jax.numpy as jnp
from jax import lax

from graphopt.forms.convolutions.arrays import Named
from graphopt.forms.convolutions.geometry import Convolution
from graphopt.forms.convolutions.phases import Method

WIDE: Final = 64
"""Channels of neighbouring groups that are multiplied with each other at once."""


def apart(method: Method) -> Method:
    """One group after the other by a method for convolutions without groups."""

    def compute(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
        alone = replace(conv, groups=1)
        found = []
        for group in range(conv.groups):
            one = {"g": slice(group, group + 1)}
            found.append(method(alone, x.cut(one), weights.cut(one), precision))
        names = found[0].names.replace("g", "")
        at = names.index("o")
        stacked = jnp.stack(
            [f.without("g").array if "g" in f.names else f.array for f in found], at
        )
        return Named(stacked, names[:at] + "g" + names[at:])

    return compute


def neighbours(conv: Convolution) -> int:
    """How many groups `diagonal` takes at once."""
    most = max(1, WIDE // max(conv.batch, conv.outputs))
    return -(-conv.groups // -(-conv.groups // most))


def diagonal(method: Method) -> Method:
    """Sums for pairs of channels of neighbouring groups, of which those within a group are kept.

    Neighbourhoods follow each other in a loop: its code is as long as that of one.
    """

    def compute(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
        many = neighbours(conv)
        wide = replace(
            conv,
            groups=1,
            batch=many * conv.batch,
            outputs=many * conv.outputs,
            result_names="".join(n for n in conv.result_names if n != "g"),
        )
        x, weights = _neighbourhoods(x, "n", many), _neighbourhoods(weights, "o", many)
        names = ""

        def one(parts: tuple[Any, Any]) -> Any:
            nonlocal names
            found = method(
                wide,
                Named(parts[0], "g" + x.names),
                Named(parts[1], "g" + weights.names),
                precision,
            )
            order = found.names.translate({ord("n"): None, ord("o"): None}) + "no"
            kept = _blocks(found.ordered(order), many)
            names = kept.names
            return kept.array

        operands = lax.expand_dims(x.array, (1,)), lax.expand_dims(weights.array, (1,))
        if x.array.shape[0] == 1:
            found = lax.expand_dims(one((operands[0][0], operands[1][0])), (0,))
        else:
            found = lax.map(one, operands)
        at = names.index("g")
        array = jnp.moveaxis(found, 0, at)
        array = array.reshape(*array.shape[:at], -1, *array.shape[at + 2 :])
        return Named(lax.slice_in_dim(array, 0, conv.groups, axis=at), names)

    return compute


def _neighbourhoods(array: Named, name: str, many: int) -> Named:
    """So many groups at once in front, without a name; within them, groups are part of a dimension."""
    names = array.names.replace("g", "")
    at = names.index(name)
    array = array.ordered("g" + names)
    calls = -(-array.size("g") // many)
    config = [(0, calls * many - array.size("g"), 0)] + [(0, 0, 0)] * len(names)
    filled = lax.pad(array.array, jnp.zeros((), array.array.dtype), config)
    filled = jnp.moveaxis(filled.reshape(calls, many, *filled.shape[1:]), 1, 1 + at)
    shape = filled.shape
    merged = filled.reshape(*shape[: 1 + at], -1, *shape[3 + at :])
    return Named(merged, names)


def _blocks(found: Named, many: int) -> Named:
    """The pairs within a group; ``n`` and ``o`` are the last dimensions."""
    shape = found.array.shape
    batch, outputs = shape[-2] // many, shape[-1] // many
    array = found.array.reshape(*shape[:-2], many, batch, many, outputs)
    kept = jnp.stack([array[..., m, :, m, :] for m in range(many)], array.ndim - 4)
    return Named(kept, found.names[:-2] + "gno")
