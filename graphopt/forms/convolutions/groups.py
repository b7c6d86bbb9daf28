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
    return max(m for m in range(1, most + 1) if conv.groups % m == 0)


def diagonal(method: Method) -> Method:
    """Sums for pairs of channels of neighbouring groups, of which those within a group are kept."""

    def compute(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
        many = neighbours(conv)
        wide = replace(
            conv,
            groups=1,
            batch=many * conv.batch,
            outputs=many * conv.outputs,
            result_names="".join(n for n in conv.result_names if n != "g"),
        )
        x, weights = _beside(x, "n"), _beside(weights, "o")
        found = []
        for first in range(0, conv.groups, many):
            part = {"g": slice(first, first + many)}
            one = method(
                wide, _joined(x.cut(part), "n"), _joined(weights.cut(part), "o"), precision
            )
            found.append(
                _blocks(
                    one.ordered(one.names.translate({ord("n"): None, ord("o"): None}) + "no"), many
                )
            )
        names = found[0].names
        return Named(lax.concatenate([f.array for f in found], names.index("g")), names)

    return compute


def _beside(array: Named, name: str) -> Named:
    """The groups next to a dimension, outside of it."""
    names = array.names.replace("g", "")
    at = names.index(name)
    return array.ordered(names[:at] + "g" + names[at:])


def _joined(array: Named, name: str) -> Named:
    """Groups and the dimension after them as that dimension, and one group."""
    at = array.names.index("g")
    shape = array.array.shape
    merged = array.array.reshape(*shape[:at], 1, shape[at] * shape[at + 1], *shape[at + 2 :])
    return Named(merged, array.names[: at + 1] + name + array.names[at + 2 :])


def _blocks(found: Named, many: int) -> Named:
    """The pairs within a group; ``n`` and ``o`` are the last dimensions."""
    shape = found.array.shape
    batch, outputs = shape[-2] // many, shape[-1] // many
    array = found.array.reshape(*shape[:-2], many, batch, many, outputs)
    kept = jnp.stack([array[..., m, :, m, :] for m in range(many)], array.ndim - 4)
    return Named(kept, found.names[:-2] + "gno")
