"""Arc functions of double precision in vector code.

Polynomials are fdlibm's. Quotients, and sums with parts of pi, keep what rounding takes from them, so that
only the last sum is rounded. All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.doubles.exact import (
    DENORMAL,
    half,
    is_negative,
    magnitude_bits,
    quotient_of,
    signed,
    small_whole,
    sum_of,
)
from graphopt.forms.functions.widening import polynomial, quotient, where

_PI: Final = (3.14159265358979311600e00, 1.22464679914735317723e-16)
_HALF_PI: Final = (1.57079632679489655800e00, 6.12323399573676603587e-17)
_QUARTER_PI: Final = 7.85398163397448278999e-01
_ATAN_HALF: Final = (4.63647609000806093515e-01, 2.26987774529616870924e-17)
_ATAN_ONE: Final = (7.85398163397448278999e-01, 3.06161699786838301793e-17)
_ATAN: Final = (
    -3.33333333333329318027e-01, 1.99999999998764832476e-01, -1.42857142725034663711e-01,
    1.11111104054623557880e-01, -9.09088713343650656196e-02, 7.69187620504482999495e-02,
    -6.66107313738753120669e-02, 5.83357013379057348645e-02, -4.97687799461593236017e-02,
    3.65315727442169155270e-02, -1.62858201153657823623e-02,
)  # fmt: skip
"""(atan(t) - t) / t^3 in t * t for |t| up to 7/16."""
_ASIN_ABOVE: Final = (
    1.66666666666666657415e-01, -3.25565818622400915405e-01, 2.01212532134862925881e-01,
    -4.00555345006794114027e-02, 7.91534994289814532176e-04, 3.47933107596021167570e-05,
)  # fmt: skip
_ASIN_BELOW: Final = (
    1.0, -2.40339491173441421878e00, 2.02094576023350569471e00, -6.88283971605453293030e-01,
    7.70381505559019352791e-02,
)  # fmt: skip
"""(asin(t) - t) / t^3 in t * t for |t| up to 1/2, above and below a line."""


def _angle(low: Any, high: Any) -> tuple[Any, Any]:
    """atan(low / high) for 0 <= low <= high and high above 0, in two parts."""
    q, lost = quotient_of(low, high)
    near, one = q < 7 / 16, q > 11 / 16
    other = quotient(where(one, q, q + q) - 1.0, q + where(one, 1.0, 2.0))
    t = where(near, q, other)
    z = t * t
    rest = t * z * polynomial(_ATAN, z) + lost * (1.0 - 0.5 * (q * q))
    large, small = (where(one, b, a) for a, b in zip(_ATAN_HALF, _ATAN_ONE, strict=True))
    return where(near, t, large), rest + where(near, 0.0, t + small)


def _less(number: tuple[float, float], parts: tuple[Any, Any]) -> tuple[Any, Any]:
    """A number in two parts less one that is no larger."""
    total, lost = sum_of(number[0], -parts[0])
    return total, lost + (number[1] - parts[1])


def _where(condition: Any, then: tuple[Any, Any], otherwise: tuple[Any, Any]) -> tuple[Any, Any]:
    return lax.select(condition, then[0], otherwise[0]), lax.select(
        condition, then[1], otherwise[1]
    )


def arc_tangent(x: Any) -> Any:
    """atan(x) of a float64 array."""
    a = lax.abs(x)
    steep = a > 1.0
    angle = _angle(where(steep, 1.0, a), where(steep, a, 1.0))
    large, small = _where(steep, _less(_HALF_PI, angle), angle)
    value = lax.select(a == np.inf, lax.full_like(a, _HALF_PI[0]), large + small)
    return lax.select(a < 2.0**-27, x, signed(value, x))


def arc_tangent_of_two(y: Any, x: Any) -> Any:
    """atan2(y, x) of two float64 arrays of one shape."""
    # Two denormal numbers are counted in their units; one alone is nothing beside the other.
    units = (magnitude_bits(x) | magnitude_bits(y)) < DENORMAL
    a, b = (lax.select(units, small_whole(magnitude_bits(v)), lax.abs(v)) for v in (y, x))
    swapped = a > b
    low, high = where(swapped, b, a), where(swapped, a, b)
    # Infinity by infinity counts as one by one; anything finite by infinity, and zero by zero, is zero.
    infinite = high == np.inf
    low = where(infinite, where(low == np.inf, 1.0, 0.0), low)
    high = where(infinite | (high == 0.0), 1.0, high)
    scale = where(high < 1.0, 2.0**60, 1.0)  # halves of the smallest numbers are denormal
    angle = _angle(scale * low, scale * high)
    angle = _where(swapped, _less(_HALF_PI, angle), angle)
    large, small = _where(is_negative(x), _less(_PI, angle), angle)
    return lax.select((x != x) | (y != y), lax.full_like(x, np.nan), signed(large + small, y))


def _asin_parts(x: Any) -> tuple[Any, Any, Any]:
    """What both arc functions share.

    Returns:
        whether |x| is above 1/2; t, which is |x| or there sqrt((1 - |x|) / 2); (asin(t) - t) / t.
    """
    a = lax.abs(x)
    large = a > 0.5
    z = where(large, (1.0 - a) * 0.5, a * a)
    t = where(large, lax.sqrt((1.0 - a) * 0.5), a)
    return large, t, quotient(z * polynomial(_ASIN_ABOVE, z), polynomial(_ASIN_BELOW, z))


def _lost(x: Any, t: Any, cut: Any) -> Any:
    """sqrt((1 - |x|) / 2) less its cut value."""
    z = (1.0 - lax.abs(x)) * 0.5
    return where(z == 0.0, 0.0, (z - cut * cut) / (t + cut))


def arc_sine(x: Any) -> Any:
    """asin(x) of a float64 array."""
    large, t, factor = _asin_parts(x)
    cut = half(t)
    rest = _HALF_PI[1] - 2.0 * _lost(x, t, cut)
    near_one = _QUARTER_PI - ((2.0 * t * factor - rest) - (_QUARTER_PI - 2.0 * cut))
    return signed(lax.select(large, near_one, t + t * factor), x)


def arc_cosine(x: Any) -> Any:
    """acos(x) of a float64 array."""
    large, t, factor = _asin_parts(x)
    cut = half(t)
    rest = t * factor
    low = where(large, 2.0 * (_lost(x, t, cut) + rest), 0.0)
    near_one = 2.0 * cut, low
    minus = is_negative(x)
    other = where(minus, -t, t), where(minus, -rest, rest)
    angle = _where(large, _where(minus, _less(_PI, near_one), near_one), _less(_HALF_PI, other))
    return angle[0] + angle[1]
