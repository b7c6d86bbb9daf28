"""When a convolution may be computed in a form: rules that all of them share."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.forms.form import Operation

RULES: Final = {
    "convolution-type": "elements are not f32 or f64, or the types of operands and result differ",
    "convolution-empty": "an operand or the result has no elements, or there is no spatial dimension",
    "convolution-window": "the window, or the number of results, is too large to be written out",
    "convolution-phases": "the input is dilated so far that too many convolutions would take its place",
    "convolution-groups": "the form is for other groups of channels",
}
"""Rule name -> message."""


def forbids_all(operation: Operation) -> str | None:
    """The rule that forbids every form of a convolution, or None."""
    arrays = (*operation.operands, *operation.results)
    types = {array.dtype for array in arrays}
    if len(types) > 1 or types.pop() not in (np.float32, np.float64):
        return "convolution-type"
    empty = any(array.size == 0 for array in arrays) or len(arrays[0].dims) < 3
    return "convolution-empty" if empty else None
