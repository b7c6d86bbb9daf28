"""Powers and cube roots of single precision, in vector code of double precision.

All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.functions.logarithms import exp2, log2_of_bits
from graphopt.forms.functions.widening import (
    INFINITY_BITS,
    is_negative,
    magnitude_bits,
    narrowed,
    nearest,
    polynomial,
    signed,
    where,
    widened_magnitude,
)

_THIRD: Final = np.int32(0x54A20000)
"""A third of the bits of a float taken from it are those of its inverse cube root, to 3.5 %."""


_ONE_BITS: Final = np.uint32(0x3F800000)
_LARGEST: Final = 250.0
"""Powers of two beyond it are infinite or zero in single precision."""
_QUICK: Final = (-1.0, 0.5, 1.0, 2.0, 3.0)
"""Exponents, beside zero, for which XLA divides, multiplies or takes a root."""
_INVERSE_ROOT: Final = (1.0, 1 / 3, 2 / 9, 14 / 81)
"""(1 - e) ** (-1/3) in e: one step from an inverse root whose cube is off by e."""


def cube_root(x: Any) -> Any:
    """cbrt(x) of a float32 array: the inverse root is iterated, which needs no division."""
    bits = magnitude_bits(x)
    ordinary = (bits != 0) & (bits < INFINITY_BITS)
    a = where(ordinary, widened_magnitude(x), 1.0)
    # The guess is made for a number that is not denormal, 2^150 times as large.
    small = bits < np.uint32(0x00800000)
    number = lax.convert_element_type(lax.convert_element_type(bits, np.int32), np.float32)
    place = lax.select(small, 2 * number, lax.abs(x))
    third = lax.convert_element_type(lax.bitcast_convert_type(place, np.int32), np.float32)
    guess = _THIRD - lax.convert_element_type(third * np.float32(1 / 3), np.int32)
    t = lax.convert_element_type(lax.bitcast_convert_type(guess, np.float32), np.float64)
    t = t * where(small, 2.0**50, 1.0)
    for series in (_INVERSE_ROOT[:3], _INVERSE_ROOT):
        t = t * polynomial(series, 1.0 - (a * t) * (t * t))
    root = signed(lax.convert_element_type(a * (t * t), np.float32), x)
    return lax.select(ordinary, root, x)


def power(x: Any, y: Any) -> Any:
    """x ** y of two float32 arrays of one shape, with the special cases of C."""
    size, factor = magnitude_bits(x), magnitude_bits(y)
    # Zero and infinity are far enough from one for any exponent of two or more.
    far = signed(lax.full_like(y, 2.0), y)
    special = (size == 0) | (size >= INFINITY_BITS)
    exponent = lax.convert_element_type(lax.select(special, far, y), np.float64)
    t = exponent * log2_of_bits(size)
    t = where(t < _LARGEST, t, _LARGEST)
    value = exp2(where(t > -_LARGEST, t, -_LARGEST))
    small = (factor != 0) & (factor < _ONE_BITS)  # denormal numbers compare as zeros
    whole = (nearest(y) == y) & ~small
    odd = whole & (nearest(0.5 * y) != 0.5 * y)
    value = narrowed(value, lax.select(odd, x, lax.full_like(x, 0.0)))
    undefined = (x != x) | (y != y) | (is_negative(x) & ~special & ~whole)
    value = lax.select(undefined, lax.full_like(x, np.nan), value)
    # One to any power, and anything to the power of zero, is one: also what is not a number.
    one = (lax.bitcast_convert_type(x, np.uint32) == _ONE_BITS) | (factor == 0)
    return lax.select(
        one | ((size == _ONE_BITS) & (factor == INFINITY_BITS)), lax.full_like(x, 1.0), value
    )


def power_by_number(x: Any, y: Any) -> Any:
    """The same with one exponent for all: float32 of no dimensions.

    Where it is a constant of the program XLA settles the choice when it compiles: what it computes quickly
    stays with it.
    """
    ways = (lax.pow, _inverse_root, lambda x, y: power(x, lax.full_like(x, y)))
    quick = reduce(lambda found, number: found | (y == number), _QUICK, y == 0.0)
    way = lax.select(y == -0.5, np.int32(1), np.int32(2))
    return lax.switch(lax.select(quick, np.int32(0), way), ways, x, y)


def _inverse_root(x: Any, _: Any) -> Any:
    """x ** -0.5"""
    bits = magnitude_bits(x)
    value = lax.convert_element_type(1.0 / lax.sqrt(widened_magnitude(x)), np.float32)
    undefined = is_negative(x) & (bits != 0) & (bits < INFINITY_BITS)
    return lax.select(undefined, lax.full_like(x, np.nan), value)
