"""Logarithm and power of two of double precision, in vector code: what other functions are made of.

Both are right to some 2^-40 of their value, for results that are rounded to single precision. Exponents
are taken and set as bits: few processors convert between doubles and integers of 64 bits in vectors.
All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.functions.widening import (
    DENORMAL,
    WHOLE,
    nearest,
    of_wide_bits,
    polynomial,
    quotient,
    wide_bits,
)

_LOG2: Final = (
    2.88539008177785, 0.9617966941132127, 0.5770779423594591, 0.412209256786155,
    0.3199053739227617, 0.2829066165906811,
)  # fmt: skip
"""log2((1 + s) / (1 - s)) / s in s * s for numbers from sqrt(1/2) to sqrt(2), to 2^-45."""
_EXP2: Final = (
    1.0, 0.693147180545911, 0.24022650695812833, 0.05550410941295717, 0.009618129159464759,
    0.0013333450481819327, 0.00015403455792749644, 1.531010238038351e-05, 1.3255240797206966e-06,
)  # fmt: skip
"""2 ** r for |r| up to 1/2, to 2^-39."""

_SQRT_HALF: Final = np.uint64(0x3FE6A09E667F3BCD)
_ONE: Final = np.uint64(0x3FF0000000000000)
_SINGLE_SQRT_HALF: Final = np.int32(0x3F3504F3)
_SINGLE_EXPONENT: Final = np.int32(-0x00800000)
_FRACTION: Final = np.uint64((1 << 52) - 1)
_UNITS: Final = np.uint64(0x4330000000000000)
"""Bits of 2^52: a whole number below it in their place is added to it."""
_EXPONENT: Final = np.uint64(52)


def log2(a: Any) -> Any:
    """The logarithm to base 2 of a float64 array; positive numbers that are neither denormal nor infinite."""
    moved = wide_bits(a) + (_ONE - _SQRT_HALF)  # above the root of 1/2 the exponent counts one more
    exponent = of_wide_bits(
        lax.shift_right_logical(moved, lax.full_like(moved, _EXPONENT)) | _UNITS
    )
    number = of_wide_bits((moved & _FRACTION) + _SQRT_HALF)
    return (exponent - (2.0**52 + 1023.0)) + _log2_near_one(number)


def log2_of_bits(bits: Any) -> Any:
    """The logarithm to base 2 of positive numbers of single precision, float64.

    Args:
        bits: of the numbers; uint32. Denormal ones are taken as they are; zero gives -276, infinity 128.
    """
    small = bits < DENORMAL
    bits = lax.bitcast_convert_type(bits, np.int32)
    units = lax.bitcast_convert_type(lax.convert_element_type(bits, np.float32), np.int32)
    bits = lax.select(small, units, bits)
    moved = bits - _SINGLE_SQRT_HALF
    exponent = lax.shift_right_arithmetic(moved, lax.full_like(moved, 23))
    number = lax.bitcast_convert_type(bits - (moved & _SINGLE_EXPONENT), np.float32)
    exponent = exponent - lax.select(small, lax.full_like(bits, 149), lax.full_like(bits, 0))
    wide = lax.convert_element_type(number, np.float64)
    return lax.convert_element_type(exponent, np.float64) + _log2_near_one(wide)


def _log2_near_one(number: Any) -> Any:
    """Of numbers from sqrt(1/2) to sqrt(2)."""
    s = quotient(number - 1.0, number + 1.0)
    return s * polynomial(_LOG2, s * s)


def exp2(t: Any) -> Any:
    """2 ** t of a float64 array; magnitudes up to 1000."""
    whole = nearest(t)
    value = polynomial(_EXP2, t - whole)
    bits = wide_bits(whole + WHOLE)
    return of_wide_bits(wide_bits(value) + lax.shift_left(bits, lax.full_like(bits, _EXPONENT)))
