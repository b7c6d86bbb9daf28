"""Logarithm of the gamma function and its derivative of double precision in vector code.

Lanczos' approximation with seven and nine terms, as XLA has it; its sum is one quotient of polynomials with
positive coefficients here. Results are right to some 1e-15, also near zeros: relatively so far from them.
All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.doubles.circular import cosine_near, sine_near
from graphopt.forms.doubles.logarithms import logarithm, logarithm_of_one_more
from graphopt.forms.functions.widening import nearest, polynomial, quotient, where

_MOVED: Final = 7.5
_LOG_MOVED: Final = 2.0149030205422647
_HALF_LN_2PI: Final = 0.91893853320467278
_LN_PI: Final = 1.1447298858494002
_ABOVE: Final = (
    10619610.099075992, 11246929.484659921, 5210869.017760827, 1379496.265878669,
    228235.21549971408, 24165.510665029473, 1599.0425347220414, 60.458333333341905,
    0.9999999999998099,
)  # fmt: skip
_BELOW: Final = (40320.0, 109584.0, 118124.0, 67284.0, 22449.0, 4536.0, 546.0, 36.0, 1.0)
"""The sum of Lanczos' terms is the quotient of the two."""
_FARTHEST: Final = 2.0**50
"""From here on the sum no longer changes."""


def _slopes(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(power * c for power, c in enumerate(coefficients))[1:]


def _parts(x: Any) -> tuple[Any, Any, Any, Any]:
    """What both functions share.

    Returns:
        whether the function is reflected; z, which is the argument less one, or there its negative;
        log(z + 7.5); and z, no larger than the sum of terms needs it.
    """
    low = x < 0.5
    z = where(low, -x, x - 1.0)
    log = _LOG_MOVED + logarithm_of_one_more(z * (1.0 / _MOVED))
    return low, z, log, lax.min(z, lax.full_like(z, _FARTHEST))


def log_gamma(x: Any) -> Any:
    """log |gamma(x)| of a float64 array; infinite at zero, negative whole numbers and both infinities."""
    low, z, log, near = _parts(x)
    # XLA makes this quotient a kernel of its own; one kernel of all has too many values to hold.
    terms = polynomial(_ABOVE, near) / polynomial(_BELOW, near)
    value = (z + 0.5 - (z + _MOVED) / log) * log + (_HALF_LN_2PI + logarithm(terms))
    # Reflection: gamma(x) gamma(1 - x) = pi / sin(pi x)
    a = lax.abs(x)
    height = logarithm(sine_near(np.pi * lax.abs(a - nearest(a))))
    reflected = where(height == -np.inf, np.inf, _LN_PI - height - value)
    value = where((x == 1.0) | (x == 2.0), 0.0, lax.select(low, reflected, value))
    return where(a == np.inf, np.inf, value)


def digamma(x: Any) -> Any:
    """The derivative of log gamma of a float64 array; minus infinity at zero, else no number at poles."""
    low, z, log, near = _parts(x)
    above, below = polynomial(_ABOVE, near), polynomial(_BELOW, near)
    slopes = polynomial(_slopes(_ABOVE), near) * below - polynomial(_slopes(_BELOW), near) * above
    value = log + slopes / (above * below) - (_MOVED - 0.5) / (z + _MOVED)
    turned = np.pi * (x - nearest(x))
    reflected = value - quotient(np.pi * cosine_near(turned), sine_near(turned))
    pole = (x <= 0.0) & (x == lax.floor(x))
    value = lax.select(low, reflected, value)
    return where(pole, where(x == 0.0, -np.inf, np.nan), value)
