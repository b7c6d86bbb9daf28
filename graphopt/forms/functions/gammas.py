"""Logarithm of the gamma function and its derivative of single precision, in vector code of double precision.

Near their zeros at 1, 2 and 1.46 both are a factor that vanishes there times a polynomial, so that small
results are right as well. Near zeros of negative arguments they are right to some 1e-15.
All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.functions.circular import sine_of
from graphopt.forms.functions.logarithms import log2
from graphopt.forms.functions.widening import (
    INFINITY_BITS,
    is_negative,
    magnitude_bits,
    nearest,
    polynomial,
    quotient,
    where,
    widened_magnitude,
)

_LN_2: Final = 0.6931471805599453
_LN_PI: Final = 1.1447298858494002
_HALF_LN_2PI: Final = 0.9189385332046727

_NEAR_TWO: Final = (
    0.4227843350984669, 0.3224670334200425, -0.06735230105122916, 0.020580808882698923,
    -0.007385551244709161, 0.0028904958481723734, -0.001192747080421496, 0.0005098662884929091,
    -0.00022324721149424045, 9.816802044864004e-05, -4.4322019411004576e-05, 2.4488148800625183e-05,
    -1.1300422100813036e-05,
)  # fmt: skip
"""lgamma(2 + d) / d for |d| up to 1/2, to 2^-40."""
_STIRLING: Final = (
    0.08333333333319239, -0.002777777664357704, 0.0007936354605354852, -0.0005944254988312451,
    0.0008196822566927878, -0.001566877711180605, 0.002825830321774403, -0.0028705513280526907,
)  # fmt: skip
"""What Stirling's formula leaves of lgamma(x), times x, in 1 / x^2 for x from 2.5 on, to 2^-43."""
_ZERO: Final = (1.4616321449683622, 9.549995429965697e-17)
"""The zero of digamma, in two parts."""
_NEAR_ZERO: Final = (
    0.9510558760313172, -0.4236274212810904, 0.2405424845044626, -0.14840492323412888,
    0.09498870240800188, -0.0619221183628025, 0.04076153313912354, -0.026976267416480987,
    0.017896420749436023, -0.011900949566882136, 0.008017229144485088, -0.005340422239579589,
    0.0031091713677300872, -0.002071278956636742, 0.0024862070079024936, -0.0016582179945100282,
)  # fmt: skip
"""digamma(1.5 + d) over its distance to the zero for |d| up to 1/2, to 2^-40."""
_ASYMPTOTIC: Final = (
    0.08333333332884492, -0.008333330401181897, 0.003967928248624016, -0.0041521926717619576,
    0.007235412579043909, -0.016172791902411075, 0.03410266681506647, -0.05040295163455491,
    0.03568643048960717,
)  # fmt: skip
"""log(x) - 1 / (2 x) - digamma(x), times x^2, in 1 / x^2 for x from 2 on, to 2^-39."""


def log_gamma(x: Any) -> Any:
    """log |gamma(x)| of a float32 array; infinite at zero, negative whole numbers and both infinities."""
    a = widened_magnitude(x)
    value = _log_gamma_above_zero(a)
    # Reflection: gamma(-a) gamma(a) = -pi / (a sin(pi a))
    product = a * lax.abs(sine_of(a - nearest(a)))
    pole = product == 0.0
    reflected = _LN_PI - _LN_2 * log2(where(pole, 1.0, product)) - value
    value = where(is_negative(x), where(pole, np.inf, reflected), value)
    return _rounded(x, value, at_zero=np.inf, at_infinity=lax.abs(x))


def _log_gamma_above_zero(a: Any) -> Any:
    """Between 1.5 and 2.5 a polynomial, below by recurrence, above by Stirling's formula: one logarithm."""
    tiny, low, middle = a < 0.5, a < 1.5, a < 2.5
    log = _LN_2 * log2(where(tiny, a * (a + 1.0), a))
    d = a - where(tiny, 0.0, where(low, 1.0, 2.0))
    near = d * polynomial(_NEAR_TWO, d)
    inverse = quotient(1.0, a)
    far = inverse * polynomial(_STIRLING, inverse * inverse) + (_HALF_LN_2PI - a)
    factor = where(low, -1.0, where(middle, 0.0, a - 0.5))
    return factor * log + where(middle, near, far)


def digamma(x: Any) -> Any:
    """The derivative of log gamma of a float32 array; no number at negative whole ones, -infinity at zero."""
    negative, size = is_negative(x), widened_magnitude(x)
    value = _digamma_above_zero(where(negative, size + 1.0, size))
    # Reflection: digamma(-a) = digamma(1 + a) + pi / tan(pi a)
    r = size - nearest(size)
    pole = r == 0.0
    turned = np.pi * sine_of(0.5 - lax.abs(r)) / where(pole, 1.0, sine_of(r))
    value = where(negative, where(pole, np.nan, value + turned), value)
    at_infinity = lax.select(negative, lax.full_like(x, np.nan), x)
    return _rounded(x, value, at_zero=-np.inf, at_infinity=at_infinity)


def _digamma_above_zero(a: Any) -> Any:
    """Between 1 and 2 a polynomial, below by recurrence, above by the asymptotic series."""
    small, middle = a < 1.0, a < 2.0
    inverse = quotient(1.0, a)
    d = a - where(small, 0.5, 1.5)
    near = ((d - (_ZERO[0] - 1.5)) - _ZERO[1]) * polynomial(_NEAR_ZERO, d)
    near = near - where(small, inverse, 0.0)
    u = inverse * inverse
    far = _LN_2 * log2(a) - (0.5 * inverse + u * polynomial(_ASYMPTOTIC, u))
    return where(middle, near, far)


def _rounded(x: Any, value: Any, at_zero: float, at_infinity: Any) -> Any:
    """Values as float32; others where the argument is zero, infinite, or no number."""
    bits = magnitude_bits(x)
    rounded = lax.convert_element_type(value, np.float32)
    rounded = lax.select(bits < INFINITY_BITS, rounded, at_infinity)
    return lax.select(bits == 0, lax.full_like(x, at_zero), rounded)
