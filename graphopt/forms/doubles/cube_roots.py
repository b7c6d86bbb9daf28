"""Cube roots of double precision in vector code, after FreeBSD's.

All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.doubles.exact import UNITS_OF_DENORMAL, half, magnitude_parts, signed
from graphopt.forms.functions.widening import of_wide_bits, polynomial, where, wide_bits

_GUESS: Final = np.int32(715094163)
"""A third of a number's upper word and this are that of its cube root, to 5 %."""
_CUBE_ROOT: Final = (
    1.87595182427177009643, -1.88497979543377169875, 1.621429720105354466140,
    -0.758397934778766047437, 0.145996192886612446982,
)  # fmt: skip
"""What a guess must be multiplied with, in its cube by the number."""
_WORD: Final = np.uint64(32)


def cube_root(x: Any) -> Any:
    """cbrt(x) of a float64 array: a guess, a polynomial to 23 bits, and one step of Newton's."""
    number, more = magnitude_parts(x)
    usual = (number != 0.0) & (number < np.inf)
    a = where(usual, number, 1.0)
    bits = wide_bits(a)
    upper = lax.shift_right_logical(bits, lax.full_like(bits, _WORD))
    number = lax.convert_element_type(lax.convert_element_type(upper, np.int32), np.float32)
    third = lax.convert_element_type(number * np.float32(1 / 3), np.int32)
    guess = lax.convert_element_type(third + _GUESS, np.uint64)
    t = of_wide_bits(lax.shift_left(guess, lax.full_like(guess, _WORD)))
    t = half(t * polynomial(_CUBE_ROOT, (t * t) * (t / a)))
    # XLA writes a quotient that several operations read to memory: only a product reads this one.
    r = 0.5 * (a / (0.5 * (t * t)))
    t = t + t * ((r - t) / ((t + t) + r))
    t = t * where(more < 0.0, 2.0 ** (-UNITS_OF_DENORMAL // 3), 1.0)
    return lax.select(usual, signed(t, x), x)
