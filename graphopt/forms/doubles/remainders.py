"""Remainders of double precision with the sign of the dividend, in vector code.

The nearest double to a quotient may be a whole number that the quotient itself does not reach: the
difference with it is then negative, and one divisor more is the remainder. Products are exact in two parts,
and so are the differences, which are multiples of the divisor's last place below the divisor.
All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.doubles.exact import product_of, signed
from graphopt.forms.functions.remainders import by_number
from graphopt.forms.functions.widening import quotient, where, wide_bits

_FRACTION: Final = np.uint64((1 << 52) - 1)
_LARGEST_QUOTIENT: Final = 2.0**52
_SMALLEST_DIVISOR: Final = 2.0**-900
"""Parts of smaller products may be denormal."""


def remainder_by_number(x: Any, y: Any) -> Any:
    """The same with one divisor for all: float64 of no dimensions."""
    return by_number(remainder, wide_bits(y) & _FRACTION == 0, x, y)


def remainder(x: Any, y: Any) -> Any:
    """x - y * trunc(x / y) of two float64 arrays of one shape, bit for bit ``lax.rem``.

    Where one quotient is out of reach, a divisor tiny or zero, or something is not a number, XLA computes
    all of them.
    """
    size = lax.abs(y)
    within = (size >= _SMALLEST_DIVISOR) & (lax.abs(x) < size * _LARGEST_QUOTIENT)
    counted = where(within, 1.0, 0.0)
    least = lax.reduce(counted, np.float64(1.0), lax.min, tuple(range(x.ndim)))
    return lax.cond(least > 0.0, _exact, lax.rem, x, y)


def _exact(x: Any, y: Any) -> Any:
    a, b = lax.abs(x), lax.abs(y)
    whole = lax.floor(quotient(a, b))
    product, lost = product_of(whole, b)
    rest = (a - product) - lost
    rest = rest + where(rest < 0.0, b, 0.0)
    return lax.select(a < b, x, signed(rest, x))
