"""Convolutions whose window is larger than their input (gradients of gradients), the two exchanged.

Most of such a window lies on the zeros around the input. With both reversed, the input is a window that
slides along the former window, and meets nothing but elements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from jax import lax

from graphopt.forms.convolutions.arrays import Named
from graphopt.forms.convolutions.geometry import Axis, Convolution
from graphopt.forms.convolutions.methods.library import library

_EXCHANGED: Final = str.maketrans("no", "on")
"""The batch becomes output channels, and these the batch."""


def exchanged(conv: Convolution) -> Convolution:
    """The convolution, in steps of one element, with input and window exchanged, in the library's order."""
    return replace(
        conv,
        axes=tuple(map(_axis, conv.axes)),
        batch=conv.outputs,
        outputs=conv.batch,
        input_names=f"n{conv.digits}gi",
        window_names=f"{conv.digits}igo",
        result_names=f"n{conv.digits}go",
    )


def swapped(conv: Convolution, x: Named, weights: Named, precision: Any) -> Named:
    """The library's convolution of the reversed weights with the reversed input."""
    found = library(exchanged(conv), _reversed(conv, weights), _reversed(conv, x), precision)
    return Named(found.array, found.names.translate(_EXCHANGED))


def _axis(axis: Axis) -> Axis:
    """Element k of the window meets element t + k - before of the input: t + i - before' of the window."""
    before = axis.size - axis.window + axis.before
    return replace(axis, size=axis.window, window=axis.size, before=before)


def _reversed(conv: Convolution, named: Named) -> Named:
    """Spatial dimensions backwards, and the names of batch and output channels exchanged."""
    places = [named.names.index(digit) for digit in conv.digits]
    return Named(lax.rev(named.array, places), named.names.translate(_EXCHANGED))
