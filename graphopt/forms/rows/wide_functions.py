"""Functions of single precision that XLA calls by element, in vector code of double precision.

XLA:CPU calls a scalar function for each element. Here the argument is reduced by arithmetic and a
polynomial or Newton's iteration computes the value in double precision, so that only the last rounding
is seen: the largest error is 0.5002 units in the last place, where XLA's is up to 2, and millions near the
zeros of log gamma and digamma. So are exponentials and logarithms of complex numbers, part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.forms.form import Form, Operation, Times
from graphopt.forms.functions.circular import cosine, sine, tangent
from graphopt.forms.functions.complex_numbers import exponential, logarithm
from graphopt.forms.functions.gammas import digamma, log_gamma
from graphopt.forms.functions.inverse_circular import (
    arc_cosine,
    arc_sine,
    arc_tangent,
    arc_tangent_of_two,
)
from graphopt.forms.functions.powers import cube_root, power, power_by_number
from graphopt.forms.functions.remainders import remainder, remainder_by_number
from graphopt.machine import CpuCosts

RULES: Final = {
    "wide-function-type": "elements are not of single precision",
    "wide-function-real": "a function of real numbers that XLA has in vector code",
    "wide-function-sliced": "parts of the result are read, which XLA computes alone",
}


def forbids(operation: Operation) -> str | None:
    """Why a function is left to XLA."""
    of_complex = operation.primitive in _OF_COMPLEX
    if of_complex and operation.operands[0].dtype.kind != "c":
        return "wide-function-real"
    wanted = np.complex64 if of_complex else np.float32
    if any(x.dtype != wanted for x in operation.operands):
        return "wide-function-type"
    return "wide-function-sliced" if operation.sliced else None


def times(operation: Operation, costs: CpuCosts) -> Times:
    """Calls of a scalar function, or of the library; vector code."""
    size = operation.results[0].size
    called, vector, started = costs.wide_functions[operation.primitive]
    if operation.reduced:
        called = costs.reduced_functions[operation.primitive]
    return Times(size * called, started + size * vector)


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """Widens, computes, and rounds once."""
    dims = operation.results[0].dims  # jax lets operands of one element along a dimension through
    with jax.enable_x64(True):
        by_number = _BY_NUMBER.get(operation.primitive)
        if by_number is not None and operands[1].ndim < len(dims):
            return [by_number(jnp.broadcast_to(operands[0], dims), operands[1])]
        wide = [jnp.broadcast_to(x, dims) for x in operands]
        return [_FUNCTIONS[operation.primitive](*wide)]


_OF_COMPLEX: Final[dict[str, Callable[..., Any]]] = {"exp": exponential, "log": logarithm}
"""Functions of complex numbers; XLA has those of real ones in vector code."""

_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "acos": arc_cosine,
    "asin": arc_sine,
    "atan": arc_tangent,
    "atan2": arc_tangent_of_two,
    "cbrt": cube_root,
    "cos": cosine,
    "digamma": digamma,
    "lgamma": log_gamma,
    "pow": power,
    "rem": remainder,
    "sin": sine,
    "tan": tangent,
    **_OF_COMPLEX,
}

_BY_NUMBER: Final[dict[str, Callable[..., Any]]] = {
    "pow": power_by_number,
    "rem": remainder_by_number,
}
"""Functions of an array and one number."""

FORM: Final = Form(
    "wide-functions",
    tuple(_FUNCTIONS),
    "polynomials and iterations in double precision, rounded once",
    forbids,
    times,
    compute,
    exact=False,
    accuracy="0.5002 units in the last place of the true value, also for denormal numbers, of which XLA's "
    "functions lose some; near the zeros of log gamma and digamma below zero some 1e-15; other special "
    "values are XLA's; remainders are bit-equal; parts of complex numbers are within 0.51 units",
    apart=True,
    joined=frozenset({"rem"}),
    unlike=frozenset({"wide-function-real"}),
)
