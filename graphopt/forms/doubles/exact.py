"""Sums and products of doubles with what rounding takes from them.

Whether a compiler joins a product and a sum into one operation makes no difference here: such products are
exact, as their factors are cut to few bits. All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.functions.widening import of_wide_bits, where, wide_bits

_HALF: Final = np.uint64(0xFFFFFFFFF8000000)
"""Sign, exponent and 26 bits of the number."""
_SIGN: Final = np.uint64(1 << 63)
_UNITS: Final = np.uint64(0x4330000000000000)
"""Bits of 2^52: a whole number below it in their place is added to it."""
DENORMAL: Final = np.uint64(1 << 52)
"""Magnitudes below are denormal, as bits."""
_LEAST: Final = 2.0**-900
"""Parts of smaller products may be denormal."""
UNITS_OF_DENORMAL: Final = 1074
"""Denormal numbers are whole multiples of two to minus this."""


def magnitude_bits(x: Any) -> Any:
    """Bits of a float64 array without its sign; uint64 of the same shape."""
    return wide_bits(x) & ~_SIGN


def is_negative(x: Any) -> Any:
    """The sign bits of a float64 array, also of zeros; bool of the same shape."""
    return lax.bitcast_convert_type(x, np.int64) < 0


def signed(value: Any, sign_of: Any) -> Any:
    """A float64 array that is not negative, with the signs of another."""
    return of_wide_bits(wide_bits(value) | (wide_bits(sign_of) & _SIGN))


def small_whole(bits: Any) -> Any:
    """Whole numbers below 2^52 in uint64 as float64: few processors convert them in vectors."""
    return of_wide_bits(bits | _UNITS) - 2.0**52


def magnitude_parts(x: Any) -> tuple[Any, Any]:
    """A normal number and an exponent whose product is |x|.

    Returns:
        the number, |x| itself or, where that is denormal, |x| in its units; and the exponent to base two of
        what it must be multiplied with, float64. Of zero the number is zero.
    """
    bits = magnitude_bits(x)
    small = bits < DENORMAL
    return (
        lax.select(small, small_whole(bits), of_wide_bits(bits)),
        where(small, -float(UNITS_OF_DENORMAL), 0.0),
    )


def half(a: Any) -> Any:
    """The number cut to 26 bits: the product of two such is exact."""
    return of_wide_bits(wide_bits(a) & _HALF)


def sum_of(large: Any, small: Any) -> tuple[Any, Any]:
    """The sum and what rounding takes from it; ``small`` is no larger than the other (Dekker 1971)."""
    total = large + small
    return total, (large - total) + small


def product_of(a: Any, b: Any) -> tuple[Any, Any]:
    """The product and what rounding takes from it (Dekker 1971), for moderate exponents."""
    total = a * b
    a_high, b_high = half(a), half(b)
    a_low, b_low = a - a_high, b - b_high
    rest = ((a_high * b_high - total) + a_high * b_low + a_low * b_high) + a_low * b_low
    return total, rest


def quotient_of(above: Any, below: Any) -> tuple[Any, Any]:
    """The quotient and what it lacks, to about 2^-100 of it; nothing of the smallest."""
    # XLA writes a quotient that several operations read to memory: only a product reads this one.
    found = 0.5 * (above / (0.5 * below))
    product, rest = product_of(found, below)
    moderate = (found > _LEAST) & (above > _LEAST)
    return found, where(moderate, ((above - product) - rest) / below, 0.0)
