"""Convolutions by XLA itself, of parts that it computes well."""

from __future__ import annotations

from typing import Any

from jax import lax

from graphopt.forms.convolutions.arrays import Named, cut_input
from graphopt.forms.convolutions.geometry import Convolution


def channels_last(axes: int) -> lax.ConvDimensionNumbers:
    """The order of dimensions that XLA's library computes, for so many spatial ones."""
    image = (0, axes + 1, *range(1, axes + 1))
    return lax.ConvDimensionNumbers(image, (axes + 1, axes, *range(axes)), image)


def library(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """A convolution without holes, its channels at the end: XLA's library computes no other.

    In the program's own computation XLA brings them there, in bodies of loops it does not.
    """
    x, room = cut_input(conv, x)
    x, weights = x.ordered(f"n{conv.digits}gi"), weights.ordered(f"{conv.digits}igo")
    array = lax.conv_general_dilated(
        _merged(x),
        _merged(weights),
        [a.stride for a in conv.axes],
        room,
        rhs_dilation=[a.spread for a in conv.axes],
        dimension_numbers=channels_last(len(conv.axes)),
        feature_group_count=conv.groups,
        precision=precision,
    )
    names = f"n{conv.digits}go"
    return Named(array.reshape(*array.shape[:-1], conv.groups, conv.outputs), names)


def _merged(named: Named) -> Any:
    """The array, its last two dimensions as one."""
    shape = named.array.shape
    return named.array.reshape(*shape[:-2], shape[-2] * shape[-1])
