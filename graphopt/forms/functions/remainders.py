"""Remainders of single precision with the sign of the dividend, in vector code of double precision.

For a quotient below 2^28 everything is exact: the nearest double to the quotient of two floats never
reaches a whole number that the quotient itself does not reach (they differ by at least 2^-24 there,
doubles by 2^-25), the product of the whole quotient with the divisor has 52 bits, and the difference is
a float.
All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.functions.widening import magnitude_bits, signed

_MANTISSA_BITS: Final = np.uint32((1 << 23) - 1)
_LARGEST_QUOTIENT: Final = np.float32(2.0**28)
_SMALLEST_DIVISOR: Final = np.float32(2.0**-100)
"""Remainders by smaller numbers may be denormal, which vector code flushes to zero."""


def remainder_by_number(x: Any, y: Any) -> Any:
    """The same with one divisor for all: float32 of no dimensions."""
    return by_number(remainder, magnitude_bits(y) & _MANTISSA_BITS == 0, x, y)


def by_number(form: Callable[[Any, Any], Any], quick: Any, x: Any, y: Any) -> Any:
    """Remainders of an array by one number, in a form unless XLA computes them quickly.

    Remainders by a power of two that is a constant of the program compile to a few vector operations. XLA
    settles the choice when it compiles, and what it computes quickly stays with it.

    Args:
        form: remainders of two arrays of one shape.
        quick: whether the number is a power of two; bool of no dimensions.
        x: the array.
        y: the number, of its type and of no dimensions.
    """
    ways = (
        lambda x, y: form(x, lax.full_like(x, y)),
        lambda x, y: lax.rem(x, lax.full_like(x, y)),
    )
    return lax.switch(lax.convert_element_type(quick, np.int32), ways, x, y)


def remainder(x: Any, y: Any) -> Any:
    """x - y * trunc(x / y) of two float32 arrays of one shape, bit for bit ``lax.rem``.

    Where one quotient is out of reach, a divisor tiny or zero, or something is not a number, XLA computes
    all of them.
    """
    size = lax.abs(y)
    within = (size >= _SMALLEST_DIVISOR) & (lax.abs(x) < size * _LARGEST_QUOTIENT)
    # The least of floats is one call of the kernel library; of truth values XLA makes four kernels.
    counted = lax.convert_element_type(within, np.float32)
    least = lax.reduce(counted, np.float32(1.0), lax.min, tuple(range(x.ndim)))
    return lax.cond(least > 0.0, _exact, lax.rem, x, y)


def _exact(x: Any, y: Any) -> Any:
    wide = lax.convert_element_type(lax.abs(x), np.float64)
    divisor = lax.convert_element_type(lax.abs(y), np.float64)
    quotient = lax.floor(wide / divisor)
    rest = lax.convert_element_type(wide - quotient * divisor, np.float32)
    return lax.select(lax.abs(x) < lax.abs(y), x, signed(rest, x))
