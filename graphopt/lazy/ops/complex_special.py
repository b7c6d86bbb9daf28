"""Special cases of complex functions that XLA's expansions get wrong (C99 annex G, as the standard asks).

Each function is XLA's with the affected parts replaced: signs of zeros on branch cuts and axes, and
results where one part is infinite or NaN.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def _complex_only(real_form: Any, complex_form: Any) -> Any:
    def call(x: Any) -> Any:
        if np.dtype(x.dtype).kind != "c":
            return real_form(x)
        return complex_form(x, jnp.real(x), jnp.imag(x))

    return call


def _make(real: Any, imag: Any) -> Any:
    return lax.complex(real, imag)


def _same_signs(function: Any) -> Any:
    """Functions whose parts have the signs of the operand's parts."""

    def call(x: Any, re: Any, im: Any) -> Any:
        y = function(x)
        return _make(jnp.copysign(jnp.real(y), re), jnp.copysign(jnp.imag(y), im))

    return call


def _abs(x: Any, re: Any, im: Any) -> Any:
    return jnp.where(jnp.isinf(re) | jnp.isinf(im), jnp.inf, jnp.abs(x)).astype(re.dtype)


def _log(function: Any) -> Any:
    def call(x: Any, re: Any, im: Any) -> Any:
        y = function(x)
        infinite = jnp.isinf(re) | jnp.isinf(im)
        return _make(jnp.where(infinite, jnp.inf, jnp.real(y)).astype(re.dtype), jnp.imag(y))

    return call


def _exp(x: Any, re: Any, im: Any) -> Any:
    y = jnp.exp(x)
    wild = ~jnp.isfinite(im)
    real = jnp.where((re == jnp.inf) & wild, re, jnp.real(y))
    imag = jnp.where(im == 0, im, jnp.imag(y))
    vanishes = (re == -jnp.inf) & wild
    zero = jnp.zeros_like(re)
    return _make(jnp.where(vanishes, zero, real), jnp.where(vanishes, jnp.copysign(zero, im), imag))


def _expm1(x: Any, re: Any, im: Any) -> Any:
    y = jnp.expm1(x)
    real = jnp.where((re == jnp.inf) & ~jnp.isfinite(im), re, jnp.real(y))
    real = jnp.where((re == 0) & (im == 0), re, real)
    return _make(real, jnp.where(im == 0, im, jnp.imag(y)))


def _sinh(x: Any, re: Any, im: Any) -> Any:
    y = jnp.sinh(x)
    wild = jnp.isinf(re) & ~jnp.isfinite(im)
    on_axis = jnp.where(jnp.isfinite(im), re * jnp.cos(im), re)
    real = jnp.where(re == 0, on_axis, jnp.where(wild, re, jnp.real(y)))
    real = jnp.where(im == 0, jnp.sinh(re), real)
    imag = jnp.where(wild, jnp.nan, jnp.imag(y)).astype(re.dtype)
    return _make(real, jnp.where(im == 0, im, imag))


def _cosh(x: Any, re: Any, im: Any) -> Any:
    y = jnp.cosh(x)
    wild = jnp.isinf(re) & ~jnp.isfinite(im)
    real = jnp.where(wild, jnp.inf, jnp.real(y)).astype(re.dtype)
    real = jnp.where(im == 0, jnp.cosh(re), real)
    imag = jnp.where(wild, jnp.nan, jnp.imag(y)).astype(re.dtype)
    zero = jnp.copysign(jnp.zeros_like(re), re) * jnp.copysign(jnp.ones_like(im), im)
    return _make(real, jnp.where((re == 0) | (im == 0), zero, imag))


def _tanh(x: Any, re: Any, im: Any) -> Any:
    y = jnp.tanh(x)
    real = jnp.where(re == 0, re, jnp.real(y))
    imag = jnp.where(im == 0, im, jnp.imag(y))
    real = jnp.where(jnp.isinf(re), jnp.sign(re), real)
    zero = jnp.where(jnp.isfinite(im), jnp.sin(2 * im), im)
    imag = jnp.where(jnp.isinf(re), jnp.copysign(jnp.zeros_like(im), zero), imag)
    return _make(real, imag)


def _turned(function: Any, back: Any) -> Any:
    """A circular function from its hyperbolic one: ``f(x) = back(g(i x))``."""

    def call(x: Any, re: Any, im: Any) -> Any:
        a, b = -im, re
        return back(function(_make(a, b), a, b))

    return call


def _over_i(y: Any) -> Any:
    return _make(jnp.imag(y), -jnp.real(y))


def _asinh(x: Any, re: Any, im: Any) -> Any:
    y = _same_signs(jnp.arcsinh)(x, re, im)
    real, imag = jnp.real(y), jnp.imag(y)
    real = jnp.where(jnp.isnan(re) & jnp.isinf(im), jnp.inf, real).astype(re.dtype)
    imag = jnp.where(im == 0, im, imag)
    return _make(real, imag)


def _atanh(x: Any, re: Any, im: Any) -> Any:
    y = _same_signs(jnp.arctanh)(x, re, im)
    real, imag = jnp.real(y), jnp.imag(y)
    bad = (jnp.isnan(re) & ~jnp.isinf(im)) | jnp.isnan(im)
    imag = jnp.where(bad, jnp.nan, imag).astype(re.dtype)
    real = jnp.where(jnp.isnan(im), jnp.where(jnp.isinf(re), 0 * jnp.sign(re), jnp.nan), real)
    real = jnp.where(jnp.isnan(re) & jnp.isinf(im), jnp.zeros_like(re), real)
    real = jnp.where(jnp.isinf(re) & jnp.isnan(im), jnp.copysign(jnp.zeros_like(re), re), real)
    return _make(jnp.where(re == 0, re, real).astype(re.dtype), imag)


def _acos(x: Any, re: Any, im: Any) -> Any:
    y = jnp.arccos(x)
    half = jnp.asarray(np.pi / 2, re.dtype)
    real = jnp.where((re == 0) & jnp.isnan(im), half, jnp.real(y))
    imag = jnp.where(jnp.isnan(im) & ~jnp.isinf(re), jnp.nan, jnp.imag(y)).astype(re.dtype)
    return _make(real, jnp.copysign(imag, -im))


def _acosh(x: Any, re: Any, im: Any) -> Any:
    y = jnp.arccosh(x)
    half = jnp.asarray(np.pi / 2, re.dtype)
    imag = jnp.where((re == 0) & jnp.isnan(im), half, jnp.imag(y))
    return _make(jnp.real(y), jnp.copysign(imag, im))


def _sqrt(x: Any, re: Any, im: Any) -> Any:
    y = jnp.sqrt(x)
    real = jnp.where((re == jnp.inf) | jnp.isinf(im), jnp.inf, jnp.real(y)).astype(re.dtype)
    imag = jnp.where((re == jnp.inf) & jnp.isnan(im), jnp.nan, jnp.imag(y))
    imag = jnp.where(jnp.isinf(im) | ((re == -jnp.inf) & ~jnp.isfinite(im)), jnp.inf, imag)
    return _make(real, jnp.copysign(imag.astype(re.dtype), im))


abs_ = _complex_only(jnp.abs, _abs)
log = _complex_only(jnp.log, _log(jnp.log))
log1p = _complex_only(jnp.log1p, _log(jnp.log1p))
log2 = _complex_only(jnp.log2, _log(jnp.log2))
log10 = _complex_only(jnp.log10, _log(jnp.log10))
exp = _complex_only(jnp.exp, _exp)
expm1 = _complex_only(jnp.expm1, _expm1)
sinh = _complex_only(jnp.sinh, _sinh)
cosh = _complex_only(jnp.cosh, _cosh)
tanh = _complex_only(jnp.tanh, _tanh)
sin = _complex_only(jnp.sin, _turned(_sinh, _over_i))
cos = _complex_only(jnp.cos, _turned(_cosh, lambda y: y))
tan = _complex_only(jnp.tan, _turned(_tanh, _over_i))
asinh = _complex_only(jnp.arcsinh, _asinh)
asin = _complex_only(jnp.arcsin, _turned(_asinh, _over_i))
atanh = _complex_only(jnp.arctanh, _atanh)
atan = _complex_only(jnp.arctan, _turned(_atanh, _over_i))
acos = _complex_only(jnp.arccos, _acos)
acosh = _complex_only(jnp.arccosh, _acosh)
sqrt = _complex_only(jnp.sqrt, _sqrt)


def expm1_np(x: Any) -> Any:
    """NumPy's expm1 with the standard's value for an infinite real and a zero imaginary part."""
    y = np.expm1(x)
    if x.dtype.kind != "c":
        return y
    result = np.array(y)
    result.imag = np.where(x.imag == 0, x.imag, y.imag)
    infinite = (x.real == np.inf) & ~np.isfinite(x.imag)
    result.real = np.where(infinite, np.inf, y.real)
    return result
