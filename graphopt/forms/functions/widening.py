"""Between single and double precision inside of forms, with denormal numbers and signs kept.

XLA:CPU runs with denormal numbers flushed to zero, so that conversions lose them; its calls of scalar
functions see them. These conversions go by their bits. All of it must be traced under
``jax.enable_x64(True)``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
from jax import lax

SIGN: Final = np.uint32(0x80000000)
INFINITY_BITS: Final = np.uint32(0x7F800000)
DENORMAL: Final = np.uint32(0x00800000)
"""Magnitudes below are denormal, as bits."""
_UNIT: Final = 2.0**-149
"""The smallest positive number of single precision."""
WHOLE: Final = 1.5 * 2.0**52
"""A small whole number added to it stands in its last bits, negative ones in two's complement."""


def magnitude_bits(x: Any) -> Any:
    """Bits of a float32 array without its sign; uint32 of the same shape."""
    return lax.bitcast_convert_type(x, np.uint32) & np.uint32(0x7FFFFFFF)


def widened_magnitude(x: Any) -> Any:
    """|x| of a float32 array as float64, exact for denormal numbers as well."""
    bits = magnitude_bits(x)
    units = lax.convert_element_type(lax.convert_element_type(bits, np.int32), np.float64)
    plain = lax.convert_element_type(lax.abs(x), np.float64)
    return lax.select(bits < DENORMAL, units * _UNIT, plain)


def narrowed(value: Any, sign_of: Any) -> Any:
    """A float64 array that is not negative as float32, with the signs of a float32 array."""
    bits = lax.bitcast_convert_type(lax.convert_element_type(value, np.float32), np.uint32)
    # What is denormal stands, rounded, in the last bits of its sum with a number of the right size.
    sum_bits = wide_bits(value + WHOLE * _UNIT)
    bits = lax.select(bits < DENORMAL, lax.convert_element_type(sum_bits, np.uint32), bits)
    sign = lax.bitcast_convert_type(sign_of, np.uint32) & SIGN
    return lax.bitcast_convert_type(bits | sign, np.float32)


def is_negative(x: Any) -> Any:
    """The sign bits of a float32 array, also of zeros; bool of the same shape."""
    return lax.bitcast_convert_type(x, np.int32) < 0


def signed(value: Any, sign_of: Any) -> Any:
    """A float32 array that is not negative, with the signs of another."""
    sign = lax.bitcast_convert_type(sign_of, np.uint32) & SIGN
    return lax.bitcast_convert_type(lax.bitcast_convert_type(value, np.uint32) | sign, np.float32)


def wide_bits(x: Any) -> Any:
    """Bits of a float64 array; uint64 of the same shape."""
    return lax.bitcast_convert_type(x, np.uint64)


def of_wide_bits(bits: Any) -> Any:
    """The float64 array of bits of 64."""
    return lax.bitcast_convert_type(bits, np.float64)


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """Selects between arrays of float64, or numbers, in one operation."""
    values = (
        lax.full(condition.shape, v, np.float64) if isinstance(v, float) else v
        for v in (then, otherwise)
    )
    return lax.select(condition, *values)


def quotient(above: Any, below: Any) -> Any:
    """Numbers divided, for several readers.

    XLA writes a quotient that several operations read to memory. Here only a product reads it.
    """
    return 2.0 * ((0.5 * above) / below)


def nearest(value: Any) -> Any:
    """The whole numbers nearest to a float64 array, half ones to even."""
    return lax.round(value, lax.RoundingMethod.TO_NEAREST_EVEN)


def within(x: Any, farthest: float, near: Callable[[Any], Any], far: Callable[[Any], Any]) -> Any:
    """A function for arguments up to a magnitude, or another for all if one is beyond or is no number.

    The greatest magnitude would not tell: XLA's maximum of many forgets what came before what is no number.
    """
    are_near = lax.abs(x) <= farthest
    return lax.cond(lax.reduce_and(are_near, tuple(range(x.ndim))), near, far, x)


def polynomial(coefficients: Sequence[float], z: Any) -> Any:
    """The polynomial with these coefficients, the lowest power's first, by Horner's rule."""
    return reduce(lambda total, c: total * z + c, reversed(coefficients[:-1]), coefficients[-1])
