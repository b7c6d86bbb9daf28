"""Logarithms of double precision in vector code, with fdlibm's polynomials.

All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.doubles.exact import magnitude_bits, magnitude_parts, small_whole
from graphopt.forms.functions.widening import of_wide_bits, polynomial, quotient, where, wide_bits

_LN_2: Final = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
"""In two parts: the product of the first with an exponent is exact."""
_LOG: Final = (
    6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
    2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
    1.479819860511658591e-01,
)  # fmt: skip
"""(log((1 + s) / (1 - s)) - 2 s) / s^3 in s * s for numbers from sqrt(1/2) to sqrt(2)."""
_SQRT_HALF: Final = np.uint64(0x3FE6A09E667F3BCD)
_ONE: Final = np.uint64(0x3FF0000000000000)
_FRACTION: Final = np.uint64((1 << 52) - 1)
_EXPONENT: Final = np.uint64(52)
_TINY: Final = np.uint64(0x3C90000000000000)
"""Bits of 2^-54: the logarithm of one and less than that is that itself."""


def _parts_of(a: Any) -> tuple[Any, Any]:
    """Exponent, and fraction from sqrt(1/2) to sqrt(2), of positive normal numbers; both float64."""
    moved = wide_bits(a) + (_ONE - _SQRT_HALF)  # above the root of 1/2 the exponent counts one more
    exponent = small_whole(lax.shift_right_logical(moved, lax.full_like(moved, _EXPONENT)))
    return exponent - 1023.0, of_wide_bits((moved & _FRACTION) + _SQRT_HALF)


def _log_of(exponent: Any, f: Any, lost: Any) -> Any:
    """exponent * log(2) + log(1 + f) + lost for 1 + f from sqrt(1/2) to sqrt(2)."""
    s = quotient(f, 2.0 + f)
    square = 0.5 * (f * f)
    series = s * s * polynomial(_LOG, s * s)
    rest = s * (square + series) + (exponent * _LN_2[1] + lost)
    return exponent * _LN_2[0] - ((square - rest) - f)


def logarithm(x: Any) -> Any:
    """log(x) of a float64 array; of negative numbers no number, of zeros minus infinity."""
    number, more = magnitude_parts(x)
    exponent, fraction = _parts_of(number)
    value = _log_of(exponent + more, fraction - 1.0, 0.0)
    value = where(x == np.inf, np.inf, where(number == 0.0, -np.inf, value))
    return where((x != x) | ((x < 0.0) & (number != 0.0)), np.nan, value)


def logarithm_of_one_more(x: Any) -> Any:
    """log(1 + x) of a float64 array."""
    u = 1.0 + x
    usual = (u > 0.0) & (u < np.inf)
    u = where(usual, u, 1.0)
    exponent, fraction = _parts_of(u)
    near = exponent == 0.0
    above = x > 1.0
    lost = where(above, 1.0 - (u - x), x - (u - 1.0)) / u
    value = _log_of(exponent, where(near, x, fraction - 1.0), where(near | ~usual, 0.0, lost))
    other = where(x == -1.0, -np.inf, where(x == np.inf, np.inf, np.nan))
    value = where(usual, value, other)
    tiny = magnitude_bits(x) < _TINY
    return lax.select(tiny, x, value)
