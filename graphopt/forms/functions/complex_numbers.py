"""Exponential and logarithm of complex numbers of single precision, in vector code of double precision.

Both parts are rounded once, and nothing overflows on the way. All of it must be traced under
``jax.enable_x64(True)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from jax import lax

from graphopt.forms.functions.circular import wide_cosine, wide_sine
from graphopt.forms.functions.inverse_circular import arc_tangent_of_two
from graphopt.forms.functions.logarithms import exp2, log2
from graphopt.forms.functions.widening import where, widened_magnitude

_LOG2_E: Final = 1.4426950408889634
_HALF_LN_2: Final = 0.34657359027997264
_FARTHEST: Final = 280.0
"""Powers of two beyond it are infinite or zero in single precision, whatever they are multiplied by."""


def exponential(z: Any) -> Any:
    """exp(z) of a complex64 array."""
    x, y = lax.real(z), lax.imag(z)
    t = lax.convert_element_type(x, np.float64) * _LOG2_E
    size = exp2(where(t < -_FARTHEST, -_FARTHEST, where(t > _FARTHEST, _FARTHEST, t)))
    real = lax.convert_element_type(size * wide_cosine(y), np.float32)
    imaginary = lax.convert_element_type(size * wide_sine(y), np.float32)
    return lax.complex(real, lax.select(y == 0, lax.full_like(y, 0.0), imaginary))


def logarithm(z: Any) -> Any:
    """log(z) of a complex64 array."""
    x, y = lax.real(z), lax.imag(z)
    a, b = widened_magnitude(x), widened_magnitude(y)
    larger, smaller = lax.square(lax.max(a, b)), lax.square(lax.min(a, b))
    total = larger + smaller
    ordinary = (total > 0.0) & (total < np.inf)
    value = _HALF_LN_2 * log2(where(ordinary, total, 1.0))
    # Near one the logarithm is as small as what the sum has lost.
    lost = 0.5 * (smaller - (total - larger))
    value = value + where(lax.abs(total - 1.0) < 0.5, lost, 0.0)
    other = where(total == 0.0, -np.inf, total)
    real = lax.convert_element_type(where(ordinary, value, other), np.float32)
    return lax.complex(real, arc_tangent_of_two(y, x))
