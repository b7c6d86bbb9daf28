"""Elementwise operations as rows: name, dtypes, result, jax form, NumPy form."""

from __future__ import annotations

from typing import Any, Final

import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.lazy.core.infer import elementwise_rule
from graphopt.lazy.core.node import Op
from graphopt.lazy.ops import complex_special, special

FLOAT: Final = "floating-point"
REAL_FLOAT: Final = "real floating-point"
NUMERIC: Final = "numeric"
REAL: Final = "real numeric"
BITS: Final = "integer or boolean"

_ROWS: Final[tuple[tuple[str, str, str, Any, Any], ...]] = (
    ("abs", NUMERIC, "real", complex_special.abs_, np.abs),
    ("acos", FLOAT, "same", complex_special.acos, np.arccos),
    ("acosh", FLOAT, "same", complex_special.acosh, np.arccosh),
    ("add", "any", "same", jnp.add, np.add),
    ("asin", FLOAT, "same", complex_special.asin, np.arcsin),
    ("asinh", FLOAT, "same", complex_special.asinh, np.arcsinh),
    ("atan", FLOAT, "same", complex_special.atan, np.arctan),
    ("atan2", REAL_FLOAT, "same", jnp.arctan2, np.arctan2),
    ("atanh", FLOAT, "same", complex_special.atanh, np.arctanh),
    ("bitwise_and", BITS, "same", jnp.bitwise_and, np.bitwise_and),
    ("bitwise_left_shift", "integer", "same", jnp.left_shift, np.left_shift),
    ("bitwise_invert", BITS, "same", jnp.bitwise_not, np.invert),
    ("bitwise_or", BITS, "same", jnp.bitwise_or, np.bitwise_or),
    ("bitwise_right_shift", "integer", "same", jnp.right_shift, np.right_shift),
    ("bitwise_xor", BITS, "same", jnp.bitwise_xor, np.bitwise_xor),
    ("ceil", REAL, "same", special.ceil, np.ceil),
    ("conj", NUMERIC, "same", jnp.conj, np.conj),
    ("copysign", REAL_FLOAT, "same", jnp.copysign, np.copysign),
    ("cos", FLOAT, "same", complex_special.cos, np.cos),
    ("cosh", FLOAT, "same", complex_special.cosh, np.cosh),
    ("divide", FLOAT, "same", jnp.divide, np.divide),
    ("equal", "any", "bool", jnp.equal, np.equal),
    ("exp", FLOAT, "same", complex_special.exp, np.exp),
    ("expm1", FLOAT, "same", complex_special.expm1, complex_special.expm1_np),
    ("floor", REAL, "same", special.floor, np.floor),
    ("floor_divide", REAL, "same", special.floor_divide, np.floor_divide),
    ("greater", REAL, "bool", jnp.greater, np.greater),
    ("greater_equal", REAL, "bool", jnp.greater_equal, np.greater_equal),
    ("hypot", REAL_FLOAT, "same", jnp.hypot, np.hypot),
    ("imag", "complex floating-point", "real", jnp.imag, np.imag),
    ("isfinite", NUMERIC, "bool", jnp.isfinite, np.isfinite),
    ("isinf", NUMERIC, "bool", jnp.isinf, np.isinf),
    ("isnan", NUMERIC, "bool", jnp.isnan, np.isnan),
    ("less", REAL, "bool", jnp.less, np.less),
    ("less_equal", REAL, "bool", jnp.less_equal, np.less_equal),
    ("log", FLOAT, "same", complex_special.log, np.log),
    ("log1p", FLOAT, "same", complex_special.log1p, np.log1p),
    ("log2", FLOAT, "same", complex_special.log2, np.log2),
    ("log10", FLOAT, "same", complex_special.log10, np.log10),
    ("logaddexp", REAL_FLOAT, "same", jnp.logaddexp, np.logaddexp),
    ("logical_and", "any", "bool", special.logical(jnp.logical_and), np.logical_and),
    ("logical_not", "any", "bool", special.logical(jnp.logical_not), np.logical_not),
    ("logical_or", "any", "bool", special.logical(jnp.logical_or), np.logical_or),
    ("logical_xor", "any", "bool", special.logical(jnp.logical_xor), np.logical_xor),
    ("maximum", REAL, "same", jnp.maximum, np.maximum),
    ("minimum", REAL, "same", jnp.minimum, np.minimum),
    ("multiply", "any", "same", jnp.multiply, np.multiply),
    ("negative", NUMERIC, "same", jnp.negative, np.negative),
    ("nextafter", REAL_FLOAT, "same", jnp.nextafter, np.nextafter),
    ("not_equal", "any", "bool", jnp.not_equal, np.not_equal),
    ("positive", NUMERIC, "same", jnp.positive, np.positive),
    ("pow", NUMERIC, "same", special.power, special.power_np),
    ("real", NUMERIC, "real", jnp.real, np.real),
    ("reciprocal", FLOAT, "same", jnp.reciprocal, np.reciprocal),
    ("remainder", REAL, "same", special.remainder, np.remainder),
    ("round", NUMERIC, "same", special.round_, np.round),
    ("sign", NUMERIC, "same", special.sign, np.sign),
    ("signbit", REAL_FLOAT, "bool", jnp.signbit, np.signbit),
    ("sin", FLOAT, "same", complex_special.sin, np.sin),
    ("sinh", FLOAT, "same", complex_special.sinh, np.sinh),
    ("square", NUMERIC, "same", jnp.square, np.square),
    ("sqrt", FLOAT, "same", complex_special.sqrt, np.sqrt),
    ("subtract", NUMERIC, "same", jnp.subtract, np.subtract),
    ("tan", FLOAT, "same", complex_special.tan, np.tan),
    ("tanh", FLOAT, "same", complex_special.tanh, np.tanh),
    ("trunc", REAL, "same", special.trunc, np.trunc),
    # Beyond the standard.
    ("rsqrt", REAL_FLOAT, "same", lax.rsqrt, lambda x: (1 / np.sqrt(x)).astype(x.dtype)),
    ("erf", REAL_FLOAT, "same", lax.erf, None),
    ("logistic", REAL_FLOAT, "same", lax.logistic, None),
)

OPS: Final[dict[str, Op]] = {
    name: Op(name, jax_form, numpy_form, elementwise_rule(name, allowed, result))
    for name, allowed, result, jax_form, numpy_form in _ROWS
}
"""Elementwise operations by their standard name."""
