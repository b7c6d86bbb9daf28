"""Grouped convolutions as one convolution or product per group."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from graphopt.forms.convolutions.arrays import Named
from graphopt.forms.convolutions.geometry import Convolution
from graphopt.forms.convolutions.methods.phases import Method


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
