"""What convolutions take, by XLA and in forms, from facts of the machine.

XLA's times are low estimates: it is left alone unless a form is clearly faster.
"""

from __future__ import annotations

from math import prod
from typing import Final

from graphopt.forms.convolutions.geometry import Convolution
from graphopt.forms.convolutions.methods.planes import folded
from graphopt.forms.convolutions.methods.swapped import exchanged
from graphopt.forms.convolutions.methods.turns import part_of
from graphopt.machine import CpuCosts

FEW_IMAGES: Final = 2
"""What is summed over no more is not read by vector code."""

_MOVES: Final = 3
"""Kernels that bring two arrays into an order and one back, as calls of the library."""

_KERNELS: Final = 8
"""What starting the kernels of a form takes, as calls of the library."""


def default_ns(conv: Convolution, costs: CpuCosts) -> float:
    """XLA's own way."""
    if len(conv.axes) > 3 or (len(conv.axes) == 3 and conv.holes):
        return plain_ns(conv, costs)
    if gathers(conv):
        if sums_few_images(conv):
            return costs.library_call_ns + _packed_ns(conv, costs) + _product_ns(conv, costs)
        each = costs.grouped_window_ns if conv.groups > 1 else costs.window_ns
        packed = _packed_ns(conv, costs) if len(conv.axes) >= 3 else 0.0
        return costs.library_call_ns + each * conv.work + packed
    if conv.groups > 1:
        return costs.library_call_ns + _grouped_ns(conv, costs) * _useful(conv)
    packed = _packed_ns(conv, costs)
    return costs.library_call_ns + _turned_ns(conv, costs) + packed + _product_ns(conv, costs)


def plain_ns(conv: Convolution, costs: CpuCosts) -> float:
    """XLA's loops, where it does not ask its library; batches in groups meet every channel there."""
    each = costs.plain_convolution_ns["product by a loop"]
    return each * conv.work * (conv.groups if conv.by_batch else 1)


def turned_ns(conv: Convolution, costs: CpuCosts) -> float:
    """Every array that is not in the library's order is brought there, or back."""
    arrays = (
        (conv.read, conv.input_names, f"n{conv.digits}gi"),
        (conv.weights, conv.window_names, f"{conv.digits}igo"),
        (conv.size, conv.result_names, f"n{conv.digits}go"),
    )
    turned = sum(size for size, names, wanted in arrays if names != wanted)
    return _MOVES * costs.library_call_ns + costs.turn_ns * turned


def gathers(conv: Convolution) -> bool:
    """Whether it is like a gradient by weights: the batch is grouped, or windows exceed the result."""
    return conv.by_batch or conv.places < conv.window


def sums_few_images(conv: Convolution) -> bool:
    """Whether it is like a gradient by weights of so few images that XLA's library reads in scalar code."""
    plain = conv.groups == 1 and len(conv.axes) < 3
    return plain and gathers(conv) and conv.places > 1 and conv.inputs <= FEW_IMAGES


def interleaved_ns(conv: Convolution, costs: CpuCosts) -> float:
    """Bringing the phases of the result together."""
    return conv.size * costs.moved_ns if conv.holes else 0.0


def shifts_ns(conv: Convolution, costs: CpuCosts) -> float:
    """Padding, and one vectorised pass for each element of the window."""
    short = conv.result_names[-1].isdigit() and conv.axes[-1].results < costs.few_elements
    moved = (conv.padded + conv.size) * costs.turn_ns if short else 0.0
    if conv.groups == 1:
        plain = costs.plain_convolution_ns
        products = plain["product of shifted elements"] * conv.work
        work = plain["element shifted"] * _elements(conv) + products
        return _KERNELS * costs.library_call_ns + moved + work
    each = costs.shifted_product_ns if conv.inputs == 1 else costs.shifted_channels_ns
    return _passes_ns(conv, costs) + moved + conv.work * each


def turns_ns(conv: Convolution, costs: CpuCosts) -> float:
    """The same for one part of the window after the other, and their sum, to memory and back every time."""
    turns, part = part_of(conv)
    kept = 2 * conv.size * conv.itemsize / costs.bytes_per_ns
    return turns * (shifts_ns(part, costs) + kept + _KERNELS * costs.library_call_ns)


def sums_ns(conv: Convolution, costs: CpuCosts) -> float:
    """The same, and what is left to reduce."""
    short = conv.window_names[-1].isdigit() and conv.axes[-1].window < costs.few_elements
    moved = 2 * conv.padded * costs.turn_ns if short else 0.0
    return 2 * _passes_ns(conv, costs) + moved + conv.work * costs.shifted_sum_ns


def one_product_ns(conv: Convolution, costs: CpuCosts) -> float:
    """A product by the library."""
    return costs.library_call_ns + _product_ns(conv, costs)


def window_products_ns(conv: Convolution, costs: CpuCosts) -> float:
    """Columns, and products of all groups by one call."""
    columns = conv.groups * conv.places * conv.batch * conv.inputs * conv.window
    moved = costs.moved_ns * (columns + conv.padded + conv.weights)
    return costs.library_call_ns + moved + 2 * _product_ns(conv, costs)


def apart_ns(conv: Convolution, costs: CpuCosts) -> float:
    """A convolution by the library for each group, and their results side by side."""
    moved = costs.moved_ns * (conv.padded + 2 * conv.size)
    return conv.groups * costs.library_call_ns + moved + _product_ns(conv, costs)


def _grouped_ns(conv: Convolution, costs: CpuCosts) -> float:
    """A multiplication of XLA's convolution in groups."""
    one, few, some, many = costs.grouped_convolution_ns
    if min(conv.inputs, conv.outputs) == 1:
        return one
    if conv.inputs <= costs.few_channels:
        return few
    return some if conv.inputs <= costs.some_channels else many


def planes_ns(conv: Convolution, costs: CpuCosts) -> float:
    """Copies of what is read along one dimension, and a convolution along two."""
    if len(conv.axes) <= 2:
        return default_ns(conv, costs)
    _, flat = folded(conv)
    moved = conv.padded + flat.read + flat.weights + conv.size
    return _KERNELS * costs.library_call_ns + costs.moved_ns * moved + planes_ns(flat, costs)


def swapped_ns(conv: Convolution, costs: CpuCosts) -> float:
    """The library's convolution with the input as its window; both reversed, and brought into its order."""
    other = exchanged(conv)
    moved = costs.turn_ns * (other.read + other.weights + other.size)
    return _MOVES * costs.library_call_ns + moved + default_ns(other, costs)


def _packed_ns(conv: Convolution, costs: CpuCosts) -> float:
    """XLA's library brings what windows read into the order of a product."""
    if conv.window == 1:
        return 0.0
    along = " along three dimensions" if len(conv.axes) >= 3 else ""
    few = ", few channels" if conv.inputs <= costs.few_channels else ""
    return costs.plain_convolution_ns[f"element read{along}{few}"] * _elements(conv)


def _elements(conv: Convolution) -> int:
    """What all windows read, one element as often as windows hold it."""
    return conv.batch * conv.places * conv.window * conv.inputs


def _product_ns(conv: Convolution, costs: CpuCosts) -> float:
    slower = costs.slower_products["f64"] if conv.itemsize > 4 else 1.0
    return 2 * _useful(conv) * slower / costs.dot_flops_per_ns


def _turned_ns(conv: Convolution, costs: CpuCosts) -> float:
    """XLA brings channels to the end and results back."""
    read = conv.read if conv.input_names[-1].isdigit() else 0
    written = conv.size if conv.result_names[-1].isdigit() else 0
    return costs.convolution_turn_ns * (read + written)


def _passes_ns(conv: Convolution, costs: CpuCosts) -> float:
    return costs.library_call_ns + 2 * conv.padded * conv.itemsize / costs.bytes_per_ns


def _useful(conv: Convolution) -> float:
    """Multiplications that do not meet holes."""
    return conv.work / prod(axis.holes for axis in conv.axes)
