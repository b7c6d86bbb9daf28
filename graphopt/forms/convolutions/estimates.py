"""What convolutions take, by XLA and in forms, from facts of the machine.

XLA's times are low estimates: it is left alone unless a form is clearly faster.
"""

from __future__ import annotations

from math import prod

from graphopt.forms.convolutions.geometry import Convolution
from graphopt.machine import CpuCosts


def default_ns(conv: Convolution, costs: CpuCosts) -> float:
    """XLA's own way."""
    if gathers(conv):
        each = costs.grouped_window_ns if conv.groups > 1 else costs.window_ns
        return costs.library_call_ns + each * conv.work
    if conv.groups > 1:
        return costs.library_call_ns + _grouped_ns(conv, costs) * _useful(conv)
    return costs.library_call_ns + _turned_ns(conv, costs) + _product_ns(conv, costs)


def gathers(conv: Convolution) -> bool:
    """Whether it is like a gradient by weights: the batch is grouped, or windows exceed the result."""
    return conv.by_batch or conv.places < conv.window


def interleaved_ns(conv: Convolution, costs: CpuCosts) -> float:
    """Bringing the phases of the result together."""
    return conv.size * costs.moved_ns if conv.holes else 0.0


def shifts_ns(conv: Convolution, costs: CpuCosts) -> float:
    """Padding, and one vectorised pass for each element of the window."""
    short = conv.result_names[-1].isdigit() and conv.axes[-1].results < costs.few_elements
    moved = (conv.padded + conv.size) * costs.turn_ns if short else 0.0
    each = costs.shifted_product_ns if conv.inputs == 1 else costs.shifted_channels_ns
    return _passes_ns(conv, costs) + moved + conv.work * each


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
