"""Sine, cosine and tangent of double precision in vector code.

The angle is reduced by multiples of a quarter turn, cut into pieces whose products with the multiple are
exact (Cody and Waite), to about 2^-120; polynomials and their last sums follow fdlibm's kernels. Arrays with
an angle beyond `FARTHEST`, or that is no number, are left to XLA. All of it must be traced under
``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.doubles.exact import product_of, sum_of
from graphopt.forms.functions.widening import (
    WHOLE,
    nearest,
    of_wide_bits,
    polynomial,
    quotient,
    where,
    wide_bits,
    within,
)

FARTHEST: Final = 1_600_000.0
"""Below it a multiple of a quarter turn has 20 bits, and its product with a piece 53."""
_PER_QUARTER: Final = 0.6366197723675814
_PIECES: Final = (
    1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624871116645580e-21,
    8.47842766036889956997e-32,
)  # fmt: skip
"""Half of pi, in three pieces of 33 bits and the rest."""
_SINE: Final = (
    -1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
    2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
)  # fmt: skip
"""(sin(r) - r) / r^3 in r * r for |r| up to pi / 4, to 2^-58."""
_COSINE: Final = (
    4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
    -2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
)  # fmt: skip
"""(cos(r) - 1 + r^2 / 2) / r^4 in r * r, the same."""
_HALF_PI: Final = 1.5707963267948966
_QUARTER_PI: Final = 0.7853981633974483
_SMALL: Final = 2.0**-27
"""Sine and tangent of smaller magnitudes are the argument, rounded."""
_ONE: Final = np.uint64(1)
_TWO: Final = np.uint64(2)
_LAST: Final = np.uint64(63)


def _reduced(x: Any) -> tuple[Any, Any, Any]:
    """The nearest multiple of a quarter turn as bits, and what is left of the angle, in two parts.

    Where the angle nearly vanishes it has few bits and every sum is exact, whichever part is larger.
    """
    whole = nearest(x * _PER_QUARTER)
    first, second, third, last = _PIECES
    rest, lost = sum_of(x - whole * first, -(whole * second))
    rest, lost_more = sum_of(rest, -(whole * third))
    r, low = sum_of(rest, (lost + lost_more) - whole * last)
    return wide_bits(whole + WHOLE), r, low


def _sine_of(r: Any, low: Any, z: Any) -> tuple[Any, Any]:
    """sin(r + low) for |r| up to pi / 4, in two parts: r itself and the rest."""
    cube = z * r
    return r, cube * polynomial(_SINE, z) + (low - 0.5 * (z * low))


def _cosine_of(r: Any, low: Any, z: Any) -> tuple[Any, Any]:
    """cos(r + low) in two parts."""
    square = 0.5 * z
    one, lost = sum_of(1.0, -square)
    return one, lost + (z * z * polynomial(_COSINE, z) - r * low)


def _turned(bits: Any, value: Any) -> Any:
    """The value, with its sign turned where the second bit stands."""
    sign = lax.shift_left(bits & _TWO, lax.full_like(bits, _LAST - _ONE))
    return of_wide_bits(wide_bits(value) ^ sign)


def _chosen(quarters: Any, odd: Any, r: Any, low: Any) -> Any:
    """Sine or, where ``odd``, cosine, with the sign of its quarter."""
    z = r * r
    sine, cosine = _sine_of(r, low, z), _cosine_of(r, low, z)
    large, small = (lax.select(odd, c, s) for s, c in zip(sine, cosine, strict=True))
    return _turned(quarters, large + small)


def _near_sine(x: Any) -> Any:
    quarters, r, low = _reduced(x)
    value = _chosen(quarters, (quarters & _ONE) == _ONE, r, low)
    return lax.select(lax.abs(x) < _SMALL, x, value)


def _near_cosine(x: Any) -> Any:
    quarters, r, low = _reduced(x)
    quarters = quarters + _ONE
    return _chosen(quarters, (quarters & _ONE) == _ONE, r, low)


def _near_tangent(x: Any) -> Any:
    """Sine over cosine or, in every other quarter, the negative of the inverse."""
    quarters, r, low = _reduced(x)
    z = r * r
    sine, cosine = (sum_of(*part(r, low, z)) for part in (_sine_of, _cosine_of))
    odd = (quarters & _ONE) == _ONE
    above, above_low = (lax.select(odd, -c, s) for s, c in zip(sine, cosine, strict=True))
    below, below_low = (lax.select(odd, s, c) for s, c in zip(sine, cosine, strict=True))
    inverse = quotient(1.0, below)
    value = above * inverse
    product, lost = product_of(value, below)
    rest = ((above - product) - lost) + (above_low - value * below_low)
    return lax.select(lax.abs(x) < _SMALL, x, value + rest * inverse)


def sine_near(angle: Any) -> Any:
    """sin of angles up to half of pi either way, to some 1e-16 of it."""
    over = lax.abs(angle) > _QUARTER_PI
    rest = _HALF_PI - lax.abs(angle)
    r = lax.select(over, rest, angle)
    z = r * r
    (large, small), (one, rest) = _sine_of(r, 0.0, z), _cosine_of(r, 0.0, z)
    sign = where(over & (angle < 0.0), -1.0, 1.0)
    return sign * lax.select(over, one + rest, large + small)


def cosine_near(angle: Any) -> Any:
    """cos of the same."""
    return sine_near(_HALF_PI - lax.abs(angle))


def sine(x: Any) -> Any:
    """sin(x) of a float64 array."""
    return within(x, FARTHEST, _near_sine, lax.sin)


def cosine(x: Any) -> Any:
    """cos(x) of a float64 array."""
    return within(x, FARTHEST, _near_cosine, lax.cos)


def tangent(x: Any) -> Any:
    """tan(x) of a float64 array."""
    return within(x, FARTHEST, _near_tangent, lax.tan)
