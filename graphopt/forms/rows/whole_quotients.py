"""Quotients and remainders of whole numbers, by divisions of floating point.

Processors divide whole numbers one by one; floats they divide in vectors. The nearest float to a quotient
of two whole numbers never reaches a whole number that the quotient itself does not reach: the two differ
by at least the inverse of the divisor, more than a division errs in a type with twice their bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.form import Form, Operation, Times
from graphopt.machine import CpuCosts

RULES: Final = {
    "quotient-type": "elements are not whole numbers of 16 or 32 bits",
    "quotient-by-number": "the divisor is one number, by which compilers divide without a division",
}

_WIDER: Final[dict[str, type[np.floating[Any]]]] = {
    "int16": np.float32,
    "uint16": np.float32,
    "int32": np.float64,
    "uint32": np.float64,
}
"""Type of the elements -> that of the division; by twice the bits."""


def forbids(operation: Operation) -> str | None:
    """Why a quotient is left to XLA."""
    if any(x.dtype.name not in _WIDER for x in operation.operands):
        return "quotient-type"
    return "quotient-by-number" if operation.operands[1].size == 1 else None


def times(operation: Operation, costs: CpuCosts) -> Times:
    """One by one; in vectors."""
    size = operation.results[0].size
    single, vector = costs.whole_quotient_ns
    return Times(size * single, size * vector)


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """The quotient towards zero, or what it leaves."""
    dims = operation.results[0].dims  # jax lets operands of one element along a dimension through
    x, y = (jnp.broadcast_to(a, dims) for a in operands)
    with jax.enable_x64(True):
        quotient = _quotient(x, y)
        return [quotient if operation.primitive == "div" else x - quotient * y]


def _quotient(x: Any, y: Any) -> Any:
    """x / y of two arrays of one shape, rounded towards zero; all bits set where y is zero, as by XLA."""
    wide = _WIDER[np.dtype(x.dtype).name]
    floats = lax.convert_element_type(x, wide) / lax.convert_element_type(y, wide)
    quotient = lax.convert_element_type(floats, x.dtype)
    zero = lax.full_like(y, 0)
    if np.issubdtype(x.dtype, np.signedinteger):
        # The smallest number has no opposite; XLA lets it overflow into itself.
        quotient = lax.select(y == lax.full_like(y, -1), lax.neg(x), quotient)
    return lax.select(y == zero, lax.bitwise_not(zero), quotient)


FORM: Final = Form(
    "whole-quotients",
    ("div", "rem"),
    "divisions of floating point with twice the bits, rounded towards zero",
    forbids,
    times,
    compute,
    exact=True,
)
