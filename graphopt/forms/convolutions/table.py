"""The forms of convolutions: when each may compute one, and by what method."""

from __future__ import annotations

from math import prod
from typing import Final

from graphopt.forms.convolutions import channels_last
from graphopt.forms.convolutions.arrays import MOST_AT_ONCE
from graphopt.forms.convolutions.estimates import (
    apart_ns,
    gathers,
    one_product_ns,
    planes_ns,
    shifts_ns,
    sums_few_images,
    sums_ns,
    swapped_ns,
    turns_ns,
    window_products_ns,
)
from graphopt.forms.convolutions.geometry import Convolution
from graphopt.forms.convolutions.methods.groups import apart
from graphopt.forms.convolutions.methods.library import library
from graphopt.forms.convolutions.methods.planes import folded, planes
from graphopt.forms.convolutions.methods.products import one_product
from graphopt.forms.convolutions.methods.shifts import shifts, turned
from graphopt.forms.convolutions.methods.sums import sums
from graphopt.forms.convolutions.methods.swapped import swapped
from graphopt.forms.convolutions.methods.turns import shifts_in_turn
from graphopt.forms.convolutions.methods.window_products import window_products
from graphopt.forms.convolutions.rules import FLOATS
from graphopt.forms.convolutions.ways import Way
from graphopt.forms.form import Form

MAX_TERMS: Final = 128
"""Products with shifted arrays in the code of one loop."""

MOST_INPUTS: Final = 12
"""Groups of more input channels are multiplied faster by the library."""

MOST_OUTPUTS: Final = 16
"""More output channels of a single group are multiplied faster by the library."""

FEW_INPUTS: Final = 4
"""Groups of more input channels do not pay for bringing channels to the end."""

MAX_PLACES: Final = 64
"""Results of one channel; what each of them reads is written to memory, or read anew."""

MOST_COPIES: Final = 8
"""Of an input in memory, for windows along one dimension."""

MIN_CHANNELS: Final = 8
"""Products of fewer rows or columns are no faster than XLA's convolution."""

MAX_CALLS: Final = 32
"""Calls of the library, one per group."""


def forbids_shifts(conv: Convolution) -> str | None:
    """Few input channels in each of several groups, or few channels altogether; a window of few elements."""
    rule = _forbids_channels(conv)
    return rule or ("convolution-window" if conv.window * conv.inputs > MAX_TERMS else None)


def forbids_turns(conv: Convolution) -> str | None:
    """The same channels, a larger window."""
    rule = _forbids_channels(conv)
    beside = conv.inputs * conv.window // conv.axes[0].window
    few = conv.window * conv.inputs <= MAX_TERMS
    return rule or ("convolution-window" if few or beside > MAX_TERMS else None)


def _forbids_channels(conv: Convolution) -> str | None:
    if conv.inputs > (1 if conv.by_batch else MOST_INPUTS):
        return "convolution-groups"
    if conv.groups == 1 and conv.outputs > MOST_OUTPUTS:
        return "convolution-groups"
    return "convolution-groups" if conv.inputs > FEW_INPUTS and turned(conv) else None


def forbids_sums(conv: Convolution) -> str | None:
    """One channel per group, and few results."""
    if conv.batch > 1 or conv.outputs > 1:
        return "convolution-groups"
    return _forbids_places(conv)


def forbids_one_product(conv: Convolution) -> str | None:
    """A window of one element."""
    if conv.groups > 1:
        return "convolution-groups"
    return "convolution-window" if conv.window > 1 or gathers(conv) else None


def forbids_window_products(conv: Convolution) -> str | None:
    """One group, and few results."""
    return "convolution-groups" if conv.groups > 1 else _forbids_places(conv)


def forbids_as_fast(conv: Convolution) -> str | None:
    """XLA is as fast for narrow products, for sequences, and for several results, of several images."""
    if sums_few_images(conv) and conv.places * conv.padded * conv.itemsize <= MOST_AT_ONCE:
        return None
    if min(conv.batch, conv.outputs) < MIN_CHANNELS:
        return "convolution-groups"
    as_fast = (conv.places > 1 or len(conv.axes) == 1) and not conv.holes
    return "convolution-window" if as_fast else None


def forbids_group_products(conv: Convolution) -> str | None:
    """Groups of several channels, and few results."""
    if conv.groups == 1 or conv.batch == conv.outputs == 1:
        return "convolution-groups"
    return _forbids_places(conv)


def forbids_apart(conv: Convolution) -> str | None:
    """Few groups of many channels."""
    if not 1 < conv.groups <= MAX_CALLS or conv.inputs < 16 or conv.outputs < 16:
        return "convolution-groups"
    return "convolution-window" if gathers(conv) else None


def forbids_planes(conv: Convolution) -> str | None:
    """One group, along three dimensions or more."""
    if conv.groups > 1:
        return "convolution-groups"
    if len(conv.axes) < 3:
        return "convolution-dimensions"
    return "convolution-window" if folded(conv)[1].read > MOST_COPIES * conv.padded else None


def forbids_swapped(conv: Convolution) -> str | None:
    """A window that is larger than the input, in steps of one element."""
    if len(conv.axes) > channels_last.MOST_AXES:
        return "convolution-dimensions"
    if any(axis.stride > 1 or axis.spread > 1 for axis in conv.axes):
        return "convolution-window"
    return None if conv.window > prod(axis.size for axis in conv.axes) else "convolution-window"


def _forbids_places(conv: Convolution) -> str | None:
    return None if conv.places <= MAX_PLACES and gathers(conv) else "convolution-window"


_WAYS: Final = (
    Way(
        "convolution-shifts",
        "shifted slices of the padded input, each times its weights, added up",
        shifts,
        forbids_shifts,
        shifts_ns,
    ),
    Way(
        "convolution-shifts-in-turn",
        "the same for one part of a large window after the other, added up in a loop",
        shifts_in_turn,
        forbids_turns,
        turns_ns,
    ),
    Way(
        "convolution-sums",
        "sums over products with shifted slices, chunks of them elementwise",
        sums,
        forbids_sums,
        sums_ns,
    ),
    Way(
        "convolution-product",
        "a matrix product over the channels",
        one_product,
        forbids_one_product,
        one_product_ns,
    ),
    Way(
        "convolution-window-product",
        "what results read side by side, and a matrix product over the window",
        window_products,
        forbids_window_products,
        window_products_ns,
        forbids_as_fast,
    ),
    Way(
        "convolution-group-products",
        "the same for all groups at once: a product for each",
        window_products,
        forbids_group_products,
        window_products_ns,
    ),
    Way(
        "convolution-groups-apart",
        "a convolution by XLA for each group",
        apart(library),
        forbids_apart,
        apart_ns,
    ),
    Way(
        "convolution-planes",
        "a convolution along two dimensions, what it reads along the others as channels",
        planes,
        forbids_planes,
        planes_ns,
        lambda conv: "convolution-window" if conv.window == 1 else None,
        FLOATS,
    ),
    Way(
        "convolution-swapped",
        "the reversed window convolved with the reversed input, where that is the smaller one",
        swapped,
        forbids_swapped,
        swapped_ns,
        types=FLOATS,
    ),
)

FORMS: Final[tuple[Form, ...]] = (*(way.form() for way in _WAYS), channels_last.FORM)
"""Rows of the table of forms."""
