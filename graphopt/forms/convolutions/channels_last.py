"""Convolutions in bodies of loops and branches, their channels brought to the end.

XLA's library computes convolutions whose channels come last. Its pass that brings them there sees the
program's own computation alone; elsewhere the others, gradients by weights among them, become plain loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.convolutions.estimates import default_ns, plain_ns, turned_ns
from graphopt.forms.convolutions.geometry import convolution
from graphopt.forms.convolutions.methods.library import channels_last
from graphopt.forms.convolutions.rules import FLOATS, forbids_all
from graphopt.forms.form import Form, Operation, Times
from graphopt.machine import CpuCosts

MOST_AXES: Final = 3
"""Spatial dimensions of the library's convolutions."""


def _forbids(operation: Operation) -> str | None:
    rule = forbids_all(operation, FLOATS)
    if rule is not None:
        return rule
    conv = convolution(operation)
    if not operation.in_body or conv.channels_last:
        return "convolution-entry"
    if conv.by_batch:
        return "convolution-groups"
    return "convolution-dimensions" if len(conv.axes) > MOST_AXES else None


def _times(operation: Operation, costs: CpuCosts) -> Times:
    conv = convolution(operation)
    return Times(plain_ns(conv, costs), default_ns(conv, costs) + turned_ns(conv, costs))


def _compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    params = dict(operation.params)
    dims = params.pop("dimension_numbers")
    (n, i, *spatial), (o, wi, *window) = dims.lhs_spec, dims.rhs_spec
    rn, ro, *places = dims.out_spec
    made = lax.conv_general_dilated_p.bind(
        lax.transpose(operands[0], (n, *spatial, i)),
        lax.transpose(operands[1], (*window, wi, o)),
        dimension_numbers=channels_last(len(spatial)),
        **params,
    )
    return [lax.transpose(made, np.argsort((rn, *places, ro)))]


FORM: Final = Form(
    "convolution-channels-last",
    ("conv_general_dilated",),
    "the same with channels last, by XLA's library; XLA does so itself, but not in loops and branches",
    _forbids,
    _times,
    _compute,
    exact=False,
    accuracy="equal to rounding: products are added in another order; outside of loops bit-equal",
    unlike=frozenset({"convolution-entry"}),
    by_body=True,
)
"""The row of the table of forms."""
