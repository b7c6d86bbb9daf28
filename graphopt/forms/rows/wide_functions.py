"""Functions of single precision that XLA calls by element, in vector code of double precision.

XLA:CPU calls a scalar function for each element. Here the argument is reduced by arithmetic and a
polynomial or Halley's iteration computes the value in double precision, so that only the last rounding
is seen: the largest error is 0.501 units in the last place, where XLA's is up to 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.circular import cosine, sine, tangent
from graphopt.forms.form import Form, Operation, Times
from graphopt.forms.remainders import remainder
from graphopt.forms.widening import (
    is_negative,
    magnitude_bits,
    narrowed,
    polynomial,
    signed,
    widened_magnitude,
)
from graphopt.machine import CpuCosts

RULES: Final = {
    "wide-function-type": "elements are not of single precision",
}

PI: Final = np.pi
TAN_PI_8: Final = 0.41421356237309503

_ATAN: Final = (
    0.9999999999992738, -0.3333333327859389, 0.1999999320654832, -0.14285391813297088,
    0.11103543091372994, -0.08993278276543636, 0.06977226349547758, -0.037704799545109836,
)  # fmt: skip
"""atan(t) / t in t * t for |t| up to tan(pi / 8), to 2^-40."""
_ASIN: Final = (
    0.9999999999849053, 0.16666667421617049, 0.07499938202212891, 0.04466203479332753,
    0.030092217781352737, 0.02471149309630505, 0.007223971994811507, 0.03495139063352326,
)  # fmt: skip
"""asin(t) / t in t * t for |t| up to 1/2, to 2^-36."""
INFINITY_BITS: Final = np.uint32(0x7F800000)
_CBRT_BITS: Final = 715094163
"""Added to a third of the high word of a double, it gives its cube root to five bits."""


def forbids(operation: Operation) -> str | None:
    """Why a function is left to XLA."""
    single = all(x.dtype == np.float32 for x in operation.operands)
    return None if single else "wide-function-type"


def times(operation: Operation, costs: CpuCosts) -> Times:
    """Calls of a scalar function; vector code."""
    size = operation.results[0].size
    called, vector, started = costs.wide_functions[operation.primitive]
    return Times(size * called, started + size * vector)


def compute(operation: Operation, operands: Sequence[Any]) -> Sequence[Any]:
    """Widens, computes, and rounds once."""
    dims = operation.results[0].dims  # jax lets operands of one element along a dimension through
    with jax.enable_x64(True):
        wide = [jnp.broadcast_to(x, dims) for x in operands]
        return [_FUNCTIONS[operation.primitive](*wide)]


def _where(condition: Any, then: Any, otherwise: Any) -> Any:
    """Selects between arrays of float64, or numbers, in one operation."""
    values = (
        lax.full(condition.shape, v, np.float64) if isinstance(v, float) else v
        for v in (then, otherwise)
    )
    return lax.select(condition, *values)


def _angle(low: Any, high: Any) -> Any:
    """atan(low / high) for 0 <= low <= high, with one division."""
    large = low > TAN_PI_8 * high
    above = _where(large, low - high, low)
    below = _where(large, low + high, high)
    t = above / _where(below == 0, 1.0, below)
    return t * polynomial(_ATAN, t * t) + _where(large, PI / 4, 0.0)


def _atan2(y: Any, x: Any) -> Any:
    a, b = widened_magnitude(y), widened_magnitude(x)
    swapped = a > b
    low, high = _where(swapped, b, a), _where(swapped, a, b)
    # Infinity by infinity counts as one by one; anything finite by infinity is zero.
    infinite = high == np.inf
    low = _where(infinite, _where(low == np.inf, 1.0, 0.0), low)
    angle = _angle(low, _where(infinite, 1.0, high))
    angle = _where(swapped, PI / 2 - angle, angle)
    angle = narrowed(_where(is_negative(x), PI - angle, angle), y)
    return lax.select((x != x) | (y != y), lax.full_like(x, np.nan), angle)


def _asin_parts(x: Any) -> tuple[Any, Any]:
    """Whether |x| is above 1/2, and asin of |x| there taken from the other side."""
    a = lax.convert_element_type(lax.abs(x), np.float64)
    large = a > 0.5
    half = (1.0 - a) * 0.5
    t = _where(large, lax.sqrt(half), a)
    return large, t * polynomial(_ASIN, _where(large, half, a * a))


def _asin(x: Any) -> Any:
    large, value = _asin_parts(x)
    value = _where(large, PI / 2 - 2 * value, value)
    return signed(lax.convert_element_type(value, np.float32), x)


def _acos(x: Any) -> Any:
    large, value = _asin_parts(x)
    minus = x < 0
    near = _where(minus, PI - 2 * value, 2 * value)
    value = _where(large, near, PI / 2 - _where(minus, -value, value))
    return lax.convert_element_type(value, np.float32)


def _cbrt(x: Any) -> Any:
    bits = magnitude_bits(x)
    ordinary = (bits != 0) & (bits < INFINITY_BITS)
    a = _where(ordinary, widened_magnitude(x), 1.0)
    high = lax.shift_right_logical(lax.bitcast_convert_type(a, np.uint64), np.uint64(32))
    high = lax.convert_element_type(lax.convert_element_type(high, np.int32), np.float64)
    third = lax.convert_element_type(high * (1 / 3), np.int32) + np.int32(_CBRT_BITS)
    guess = lax.shift_left(lax.convert_element_type(third, np.uint64), np.uint64(32))
    t = lax.bitcast_convert_type(guess, np.float64)
    for _ in range(2):
        cube = t * t * t
        t = t * (a + a + cube) / (a + cube + cube)
    return _where(ordinary, signed(lax.convert_element_type(t, np.float32), x), x)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "acos": _acos,
    "asin": _asin,
    "atan2": _atan2,
    "cbrt": _cbrt,
    "cos": cosine,
    "rem": remainder,
    "sin": sine,
    "tan": tangent,
}

FORM: Final = Form(
    "wide-functions",
    tuple(_FUNCTIONS),
    "polynomials and iterations in double precision, rounded once",
    forbids,
    times,
    compute,
    exact=False,
    accuracy="0.501 units in the last place of the true value, also for denormal numbers, of which "
    "XLA's functions lose some; other special values are XLA's; remainders are bit-equal",
)
