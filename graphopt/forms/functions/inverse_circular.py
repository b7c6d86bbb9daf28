"""Arc functions of single precision, in vector code of double precision.

Arguments are brought near zero by one division or root, where a polynomial holds.
All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.functions.widening import (
    is_negative,
    magnitude_bits,
    narrowed,
    polynomial,
    quotient,
    signed,
    where,
    widened_magnitude,
)

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
_SMALL: Final = np.uint32(0x39000000)
"""Bits of 2^-13: the arc tangent of smaller magnitudes is the argument, rounded."""


def _angle(low: Any, high: Any) -> Any:
    """atan(low / high) for 0 <= low <= high and high above 0, with one division."""
    large = low > TAN_PI_8 * high
    above = where(large, low - high, low)
    below = where(large, low + high, high)
    t = quotient(above, below)
    return t * polynomial(_ATAN, t * t) + where(large, PI / 4, 0.0)


def arc_tangent(x: Any) -> Any:
    """atan(x) of a float32 array."""
    a = lax.convert_element_type(lax.abs(x), np.float64)
    steep = a > 1.0
    angle = _angle(where(steep, 1.0, a), where(steep, a, 1.0))
    angle = where(steep, PI / 2 - angle, angle)
    rounded = signed(lax.convert_element_type(angle, np.float32), x)
    return lax.select(magnitude_bits(x) < _SMALL, x, rounded)


def arc_tangent_of_two(y: Any, x: Any) -> Any:
    """atan2(y, x) of two float32 arrays of one shape."""
    a, b = widened_magnitude(y), widened_magnitude(x)
    swapped = a > b
    low, high = where(swapped, b, a), where(swapped, a, b)
    # Infinity by infinity counts as one by one; anything finite by infinity, and zero by zero, is zero.
    infinite = high == np.inf
    low = where(infinite, where(low == np.inf, 1.0, 0.0), low)
    angle = _angle(low, where(infinite | (high == 0.0), 1.0, high))
    angle = where(swapped, PI / 2 - angle, angle)
    angle = narrowed(where(is_negative(x), PI - angle, angle), y)
    return lax.select((x != x) | (y != y), lax.full_like(x, np.nan), angle)


def _asin_parts(x: Any) -> tuple[Any, Any]:
    """Whether |x| is above 1/2, and asin of |x| there taken from the other side."""
    a = lax.convert_element_type(lax.abs(x), np.float64)
    large = a > 0.5
    half = (1.0 - a) * 0.5
    t = where(large, lax.sqrt(half), a)
    return large, t * polynomial(_ASIN, where(large, half, a * a))


def arc_sine(x: Any) -> Any:
    """asin(x) of a float32 array."""
    large, value = _asin_parts(x)
    value = where(large, PI / 2 - 2 * value, value)
    return signed(lax.convert_element_type(value, np.float32), x)


def arc_cosine(x: Any) -> Any:
    """acos(x) of a float32 array."""
    large, value = _asin_parts(x)
    minus = x < 0
    near = where(minus, PI - 2 * value, 2 * value)
    value = where(large, near, PI / 2 - where(minus, -value, value))
    return lax.convert_element_type(value, np.float32)
