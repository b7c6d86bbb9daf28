"""Functions of double precision that XLA calls by element, in vector code.

XLA:CPU calls a scalar function for each element. Here the argument is reduced by arithmetic that keeps what
rounding takes, and a polynomial computes the value: the largest error is 0.97 units in the last place, where
XLA's is 0.5 to 3.5; of inverse hyperbolic functions 2.5. What the reduction cannot reach, angles beyond 1.6
million and quotients beyond 2^52, is left to XLA when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from graphopt.forms.doubles.circular import cosine, sine, tangent
from graphopt.forms.doubles.cube_roots import cube_root
from graphopt.forms.doubles.error_inverse import inverse_error_function
from graphopt.forms.doubles.gammas import digamma, log_gamma
from graphopt.forms.doubles.inverse_circular import (
    arc_cosine,
    arc_sine,
    arc_tangent,
    arc_tangent_of_two,
)
from graphopt.forms.doubles.inverse_hyperbolic import area_cosine, area_sine, area_tangent
from graphopt.forms.doubles.logarithms import logarithm, logarithm_of_one_more
from graphopt.forms.doubles.remainders import remainder, remainder_by_number
from graphopt.forms.form import Form, Operation, Times
from graphopt.machine import CpuCosts

RULES: Final = {
    "double-function-type": "elements are not of double precision",
    "double-function-sliced": "parts of the result are read, which XLA computes alone",
}

_LOOPED: Final = 0.1
"""In loops the threads are awake: of a start so much is left."""


def forbids(operation: Operation) -> str | None:
    """Why a function is left to XLA."""
    if any(x.dtype != np.float64 for x in operation.operands):
        return "double-function-type"
    return "double-function-sliced" if operation.sliced else None


def times(operation: Operation, costs: CpuCosts) -> Times:
    """Calls of a scalar function, or of the library; vector code."""
    size = operation.results[0].size
    called, vector, started = costs.double_functions[operation.primitive]
    if operation.reduced:
        called = 2.0 * costs.reduced_functions[operation.primitive]
    return Times(size * called, started * (_LOOPED if operation.in_loop else 1.0) + size * vector)


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """The function of operands brought to one shape."""
    dims = operation.results[0].dims  # jax lets operands of one element along a dimension through
    with jax.enable_x64(True):
        if operation.primitive == "rem" and operands[1].ndim < len(dims):
            return [remainder_by_number(jnp.broadcast_to(operands[0], dims), operands[1])]
        same = [jnp.broadcast_to(x, dims) for x in operands]
        return [_FUNCTIONS[operation.primitive](*same)]


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "acos": arc_cosine,
    "acosh": area_cosine,
    "asin": arc_sine,
    "asinh": area_sine,
    "atan": arc_tangent,
    "atan2": arc_tangent_of_two,
    "atanh": area_tangent,
    "cbrt": cube_root,
    "cos": cosine,
    "digamma": digamma,
    "erf_inv": inverse_error_function,
    "lgamma": log_gamma,
    "log": logarithm,
    "log1p": logarithm_of_one_more,
    "rem": remainder,
    "sin": sine,
    "tan": tangent,
}

FORM: Final = Form(
    "double-functions",
    tuple(_FUNCTIONS),
    "arguments reduced in two parts, and polynomials",
    forbids,
    times,
    compute,
    exact=False,
    accuracy="below 0.97 units in the last place of the true value (XLA's: 0.5 to 3.5), of inverse "
    "hyperbolic functions 2.5; special values are XLA's; denormal arguments, of which XLA's functions lose "
    "some, are kept or, in arc tangents, taken for zero beside others; remainders are bit-equal; log gamma, "
    "digamma and the inverse error function are XLA's approximations, equal to some 1e-15",
    apart=True,
    joined=frozenset({"rem"}),
    unlike=frozenset({"double-function-type"}),
)
