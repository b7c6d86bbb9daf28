"""When a convolution may be computed in a form: rules that all of them share."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

import jax.numpy as jnp
import numpy as np

from graphopt.forms.form import Operation

RULES: Final = {
    "convolution-type": "the form is for elements of other types, or those of operands and result differ",
    "convolution-empty": "an operand or the result has no elements, or there is no spatial dimension",
    "convolution-window": "the window, or the number of results, is too large to be written out",
    "convolution-phases": "the input is dilated so far that too many convolutions would take its place",
    "convolution-groups": "the form is for other groups of channels",
    "convolution-dimensions": "the form is for another number of spatial dimensions",
    "convolution-entry": "XLA brings the channels to the end itself, or finds them there",
}
"""Rule name -> message."""

WIDE: Final[frozenset[np.dtype[Any]]] = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
"""Types of forms that add up products themselves."""

FLOATS: Final[frozenset[np.dtype[Any]]] = WIDE | {np.dtype(jnp.bfloat16), np.dtype(np.float16)}
"""Types of XLA's library, which adds up in single precision or more."""


def forbids_all(operation: Operation, allowed: Container[np.dtype[Any]] = WIDE) -> str | None:
    """The rule that forbids every form of a convolution of such types, or None."""
    arrays = (*operation.operands, *operation.results)
    types = {array.dtype for array in arrays}
    if len(types) > 1 or types.pop() not in allowed:
        return "convolution-type"
    empty = any(array.size == 0 for array in arrays) or len(arrays[0].dims) < 3
    return "convolution-empty" if empty else None
