"""Elementwise functions that agree with the array API standard where jax or NumPy do not.

Each comes in a jax and a NumPy form with the same special cases (signed zeros, NaN, infinities,
division by zero, negative integer powers).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def _is_integer(x: Any) -> bool:
    return np.dtype(x.dtype).kind in "iu"


def _broadcast(a: Any, b: Any) -> tuple[Any, Any]:
    shape = np.broadcast_shapes(a.shape, b.shape)
    return jnp.broadcast_to(a, shape), jnp.broadcast_to(b, shape)


def floor_divide(a: Any, b: Any) -> Any:
    """Quotient rounded towards minus infinity; integers divided by zero give 0, as in NumPy."""
    a, b = _broadcast(a, b)
    if _is_integer(a):
        zero = b == 0
        safe = jnp.where(zero, jnp.ones_like(b), b)
        quotient = lax.div(a, safe)
        if np.dtype(a.dtype).kind == "i":
            inexact = (lax.rem(a, safe) != 0) & ((a < 0) != (safe < 0))
            quotient = quotient - inexact.astype(a.dtype)
        return jnp.where(zero, jnp.zeros_like(a), quotient)
    # CPython's float floor division, as in NumPy's npy_floor_divide.
    mod = lax.rem(a, b)
    div = (a - mod) / b
    div = jnp.where((mod != 0) & ((b < 0) != (mod < 0)), div - 1, div)
    floor = jnp.floor(div)
    floor = jnp.where(div - floor > 0.5, floor + 1, floor)
    ratio = a / b
    result = jnp.where(div != 0, floor, jnp.copysign(jnp.zeros_like(a), ratio))
    result = jnp.where(jnp.isnan(div), div, result)
    return jnp.where(b == 0, ratio, result)


def remainder(a: Any, b: Any) -> Any:
    """Remainder with the sign of the divisor; integers modulo zero give 0, as in NumPy."""
    a, b = _broadcast(a, b)
    if _is_integer(a):
        zero = b == 0
        safe = jnp.where(zero, jnp.ones_like(b), b)
        mod = lax.rem(a, safe)
        if np.dtype(a.dtype).kind == "i":
            mod = jnp.where((mod != 0) & ((mod < 0) != (safe < 0)), mod + safe, mod)
        return jnp.where(zero, jnp.zeros_like(a), mod)
    mod = lax.rem(a, b)
    adjusted = jnp.where((b < 0) != (mod < 0), mod + b, mod)
    return jnp.where(mod != 0, adjusted, jnp.copysign(jnp.zeros_like(a), b))


def integer_power_np(a: Any, b: Any) -> Any:
    """Integer power; a negative exponent gives the truncated value (0, or +-1 for bases +-1)."""
    if a.dtype.kind == "b":
        a = a.astype(np.int8)
    if b.dtype.kind != "i" or not np.any(b < 0):
        return np.power(a, b)
    plain = np.power(a, np.maximum(b, 0))
    odd = (b & 1).astype(bool)
    negative = np.where(a == 1, 1, np.where(a == -1, np.where(odd, -1, 1), 0)).astype(plain.dtype)
    return np.where(b < 0, negative, plain)


def power_np(a: Any, b: Any) -> Any:
    """Power on NumPy arrays."""
    return integer_power_np(a, b) if _is_integer(a) else np.power(a, b)


def power(a: Any, b: Any) -> Any:
    """Power; integers by repeated squaring, with the same result for negative exponents."""
    a, b = _broadcast(a, b)
    if not _is_integer(a):
        if np.dtype(a.dtype).kind == "c":
            return _complex_power(a, b)
        return jnp.power(a, b)
    result, base = jnp.ones_like(a), a
    exponent = jnp.maximum(b, 0) if np.dtype(b.dtype).kind == "i" else b
    for _ in range(a.dtype.itemsize * 8):
        result = jnp.where(exponent & 1 == 1, result * base, result)
        base = base * base
        exponent = exponent >> 1
    if np.dtype(b.dtype).kind == "u":
        return result
    odd = b & 1 == 1
    ones = jnp.ones_like(a)
    negative = jnp.where(a == 1, ones, jnp.where(a == -1, jnp.where(odd, -ones, ones), 0 * ones))
    return jnp.where(b < 0, negative, result)


def _complex_power(a: Any, b: Any) -> Any:
    result = jnp.power(a, b)
    result = jnp.where((a == 0) & (jnp.real(b) > 0), jnp.zeros_like(result), result)
    return jnp.where(b == 0, jnp.ones_like(result), result)


def _components(function: Any) -> Any:
    def parts(x: Any) -> Any:
        if np.dtype(x.dtype).kind == "c":
            return lax.complex(function(x.real), function(x.imag))
        return function(x)

    return parts


def _not_integers(function: Any) -> Any:
    return lambda x: x if np.dtype(x.dtype).kind in "iub" else function(x)


round_ = _not_integers(_components(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)))
floor = _not_integers(jnp.floor)
ceil = _not_integers(jnp.ceil)
trunc = _not_integers(jnp.trunc)


def sign(x: Any) -> Any:
    """Sign; for complex numbers x / abs(x)."""
    if np.dtype(x.dtype).kind != "c":
        return jnp.where(x == 0, jnp.zeros_like(x), jnp.sign(x))
    magnitude = jnp.abs(x)
    unit = lax.complex(x.real / magnitude, x.imag / magnitude)
    zero = jnp.zeros_like(x)
    nan = jnp.full_like(x, complex(np.nan, np.nan))
    return jnp.where(jnp.isnan(magnitude), nan, jnp.where(magnitude == 0, zero, unit))


def logical(function: Any) -> Any:
    """A logical operation on anything, through its truth value."""
    return lambda *xs: function(*[x if x.dtype == bool else x != 0 for x in xs])
