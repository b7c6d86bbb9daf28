"""Between single and double precision inside of forms, with denormal numbers and signs kept.

XLA:CPU runs with denormal numbers flushed to zero, so that conversions lose them; its calls of scalar
functions see them. These conversions go by their bits. All of it must be traced under
``jax.enable_x64(True)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
from jax import lax

SIGN: Final = np.uint32(0x80000000)
_DENORMAL: Final = np.uint32(0x00800000)
"""Magnitudes below are denormal, as bits."""
_UNIT: Final = 2.0**-149
"""The smallest positive number of single precision."""


def magnitude_bits(x: Any) -> Any:
    """Bits of a float32 array without its sign; uint32 of the same shape."""
    return lax.bitcast_convert_type(x, np.uint32) & np.uint32(0x7FFFFFFF)


def widened_magnitude(x: Any) -> Any:
    """|x| of a float32 array as float64, exact for denormal numbers as well."""
    bits = magnitude_bits(x)
    units = lax.convert_element_type(lax.convert_element_type(bits, np.int32), np.float64)
    plain = lax.convert_element_type(lax.abs(x), np.float64)
    return lax.select(bits < _DENORMAL, units * _UNIT, plain)


def narrowed(value: Any, sign_of: Any) -> Any:
    """A float64 array that is not negative as float32, with the signs of a float32 array."""
    small = value < 2.0**-126
    below = lax.select(small, value, lax.full_like(value, 0.0))
    units = lax.round(below * 2.0**149, lax.RoundingMethod.TO_NEAREST_EVEN)
    denormal = lax.convert_element_type(lax.convert_element_type(units, np.int32), np.uint32)
    bits = lax.bitcast_convert_type(lax.convert_element_type(value, np.float32), np.uint32)
    bits = lax.select(small, denormal, bits)
    sign = lax.bitcast_convert_type(sign_of, np.uint32) & SIGN
    return lax.bitcast_convert_type(bits | sign, np.float32)


def is_negative(x: Any) -> Any:
    """The sign bits of a float32 array, also of zeros; bool of the same shape."""
    return lax.bitcast_convert_type(x, np.int32) < 0


def signed(value: Any, sign_of: Any) -> Any:
    """A float32 array that is not negative, with the signs of another."""
    sign = lax.bitcast_convert_type(sign_of, np.uint32) & SIGN
    return lax.bitcast_convert_type(lax.bitcast_convert_type(value, np.uint32) | sign, np.float32)


def polynomial(coefficients: Sequence[float], z: Any) -> Any:
    """The polynomial with these coefficients, the lowest power's first, by Horner's rule."""
    return reduce(lambda total, c: total * z + c, reversed(coefficients[:-1]), coefficients[-1])
