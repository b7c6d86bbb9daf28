"""Inverse hyperbolic functions of double precision: a logarithm in vector code of one more than something.

All of it must be traced under ``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.doubles.exact import signed
from graphopt.forms.doubles.logarithms import logarithm_of_one_more
from graphopt.forms.functions.widening import quotient, where

_LARGE: Final = 2.0**28
"""Beyond it one is nothing beside the square."""
_LN_2: Final = 0.6931471805599453


def area_sine(x: Any) -> Any:
    """asinh(x) of a float64 array."""
    a = lax.abs(x)
    large = a > _LARGE
    near = where(large, 1.0, a)
    square = near * near
    more = near + square / (1.0 + lax.sqrt(square + 1.0))
    value = logarithm_of_one_more(where(large, a - 1.0, more)) + where(large, _LN_2, 0.0)
    return signed(value, x)


def area_cosine(x: Any) -> Any:
    """acosh(x) of a float64 array; no number below one."""
    large = x > _LARGE
    near = where(large, 1.0, x - 1.0)
    more = near + lax.sqrt(near * (near + 2.0))
    value = logarithm_of_one_more(where(large, x - 1.0, more)) + where(large, _LN_2, 0.0)
    return where(x < 1.0, np.nan, value)


def area_tangent(x: Any) -> Any:
    """atanh(x) of a float64 array; infinite at one and minus one, no number beyond."""
    a = lax.abs(x)
    return signed(0.5 * logarithm_of_one_more(quotient(a + a, 1.0 - a)), x)
