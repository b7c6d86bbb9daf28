"""Functions of one and two arrays, element by element."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as jss
import scipy.special as special

from benchmarks.operations.row import Row, integers, planes, uniform

F = "torch.nn.functional."

_WIDE = {"low": -9.0, "high": 9.0}
_POSITIVE = {"low": 0.01, "high": 9.0}
_UNIT = {"low": -0.98, "high": 0.98}
_INSIDE = {"low": 0.01, "high": 0.98}
_ABOVE = {"low": 1.01, "high": 9.0}

FUNCTIONS: tuple[tuple[str, Any, str, dict[str, float]], ...] = (
    ("abs", jnp.abs, "abs", _WIDE), ("sign", jnp.sign, "sign", _WIDE),
    ("square", jnp.square, "square", _WIDE), ("reciprocal", jnp.reciprocal, "reciprocal", _POSITIVE),
    ("floor", jnp.floor, "floor", _WIDE), ("round", jnp.round, "round", _WIDE),
    ("trunc", jnp.trunc, "trunc", _WIDE), ("isnan", jnp.isnan, "isnan", _WIDE),
    ("nan_to_num", jnp.nan_to_num, "nan_to_num", _WIDE),
    ("sqrt", jnp.sqrt, "sqrt", _POSITIVE), ("rsqrt", jax.lax.rsqrt, "rsqrt", _POSITIVE),
    ("exp", jnp.exp, "exp", _WIDE), ("exp2", jnp.exp2, "exp2", _WIDE),
    ("expm1", jnp.expm1, "expm1", _WIDE), ("log", jnp.log, "log", _POSITIVE),
    ("log2", jnp.log2, "log2", _POSITIVE), ("log10", jnp.log10, "log10", _POSITIVE),
    ("log1p", jnp.log1p, "log1p", _POSITIVE), ("sin", jnp.sin, "sin", _WIDE),
    ("cos", jnp.cos, "cos", _WIDE), ("tan", jnp.tan, "tan", _WIDE),
    ("arcsin", jnp.arcsin, "asin", _UNIT), ("arccos", jnp.arccos, "acos", _UNIT),
    ("arctan", jnp.arctan, "atan", _WIDE), ("sinh", jnp.sinh, "sinh", _WIDE),
    ("cosh", jnp.cosh, "cosh", _WIDE), ("tanh", jnp.tanh, "tanh", _WIDE),
    ("arcsinh", jnp.arcsinh, "asinh", _WIDE), ("arccosh", jnp.arccosh, "acosh", _ABOVE),
    ("arctanh", jnp.arctanh, "atanh", _UNIT), ("sinc", jnp.sinc, "sinc", _WIDE),
    ("i0", jnp.i0, "i0", _WIDE), ("sigmoid", jax.nn.sigmoid, "sigmoid", _WIDE),
    ("relu", jax.nn.relu, "relu", _WIDE), ("gelu", jax.nn.gelu, F + "gelu", _WIDE),
    ("silu", jax.nn.silu, F + "silu", _WIDE), ("softplus", jax.nn.softplus, F + "softplus", _WIDE),
    ("elu", jax.nn.elu, F + "elu", _WIDE), ("mish", jax.nn.mish, F + "mish", _WIDE),
    ("hard_swish", jax.nn.hard_swish, F + "hardswish", _WIDE),
    ("leaky_relu", jax.nn.leaky_relu, F + "leaky_relu", _WIDE),
    ("log_sigmoid", jax.nn.log_sigmoid, F + "logsigmoid", _WIDE),
    ("erf", jss.erf, "erf", _WIDE), ("erfc", jss.erfc, "erfc", _WIDE),
    ("erfinv", jss.erfinv, "erfinv", _UNIT), ("gammaln", jss.gammaln, "lgamma", _POSITIVE),
    ("digamma", jss.digamma, "digamma", _POSITIVE), ("logit", jss.logit, "logit", _INSIDE),
    ("ndtr", jss.ndtr, "special.ndtr", _WIDE), ("ndtri", jss.ndtri, "special.ndtri", _INSIDE),
    ("log_ndtr", jss.log_ndtr, "special.log_ndtr", _WIDE), ("i0e", jss.i0e, "special.i0e", _WIDE),
    ("i1", jss.i1, "special.i1", _WIDE), ("i1e", jss.i1e, "special.i1e", _WIDE),
    ("entr", jss.entr, "special.entr", _INSIDE),
)  # fmt: skip

PAIRS: tuple[tuple[str, Any, str], ...] = (
    ("add", jnp.add, "add"), ("multiply", jnp.multiply, "mul"), ("divide", jnp.divide, "div"),
    ("power", jnp.power, "pow"), ("arctan2", jnp.arctan2, "atan2"), ("hypot", jnp.hypot, "hypot"),
    ("maximum", jnp.maximum, "maximum"), ("fmod", jnp.fmod, "fmod"),
    ("remainder", jnp.remainder, "remainder"), ("floor_divide", jnp.floor_divide, "floor_divide"),
    ("logaddexp", jnp.logaddexp, "logaddexp"), ("copysign", jnp.copysign, "copysign"),
    ("nextafter", jnp.nextafter, "nextafter"), ("xlogy", jss.xlogy, "xlogy"),
    ("greater", jnp.greater, "gt"),
)  # fmt: skip

WHOLE: tuple[tuple[str, Any, str], ...] = (
    ("add", jnp.add, "add"), ("multiply", jnp.multiply, "mul"),
    ("floor_divide", jnp.floor_divide, "floor_divide"), ("remainder", jnp.remainder, "remainder"),
    ("bitwise_and", jnp.bitwise_and, "bitwise_and"), ("gcd", jnp.gcd, "gcd"),
)  # fmt: skip

DOUBLE = frozenset(
    "arccos arccosh arcsin arcsinh arctan arctan2 arctanh cos digamma erf erfinv fmod gammaln log log10 "
    "log1p logit ndtri power remainder sigmoid sin sinc tan tanh".split()
)
"""Those that are measured in double precision as well."""


def find(torch: Any, name: str) -> Any:
    """A function of PyTorch by its dotted name."""
    for part in name.removeprefix("torch.").split("."):
        torch = getattr(torch, part)
    return torch


def _named(name: str) -> Any:
    return lambda torch, *tensors: find(torch, name)(*tensors)


ROWS: tuple[Row, ...] = (
    *(
        Row(f"functions.{name}", fn, planes(make=uniform, **span), _named(other))
        for name, fn, other, span in FUNCTIONS
    ),
    *(
        Row(f"functions.{name}, double", fn, planes(make=uniform, dtype="float64", **span), _named(other))
        for name, fn, other, span in FUNCTIONS
        if name in DOUBLE
    ),
    *(
        Row(f"functions.{name}, double", fn, planes(2, uniform, low=0.1, high=5.0, dtype="float64"),
            _named(other))
        for name, fn, other in PAIRS
        if name in DOUBLE
    ),
    Row("functions.cbrt, double", jnp.cbrt, planes(dtype="float64"), numpy=special.cbrt),
    Row("functions.exp, double", jnp.exp, planes(dtype="float64"), _named("exp")),
    Row("functions.tanh, bfloat16", lambda x: jnp.tanh(x.astype(jnp.bfloat16)), planes(),
        lambda T, x: T.tanh(x.bfloat16())),
    Row("functions.cbrt", jnp.cbrt, planes(), numpy=special.cbrt),
    *(
        Row(f"functions.{name}", fn, planes(2, uniform, low=0.1, high=5.0), _named(other))
        for name, fn, other in PAIRS
    ),
    *(
        Row(f"functions.{name}, integers", fn, planes(2, integers), _named(other))
        for name, fn, other in WHOLE
    ),
    Row("functions.where", lambda x, y: jnp.where(x > y, x, y), planes(2),
        lambda T, x, y: T.where(x > y, x, y)),
    Row("functions.clip", lambda x: jnp.clip(x, -1, 1), planes(), lambda T, x: T.clip(x, -1, 1)),
    Row("functions.gammainc", jss.gammainc, planes(2, uniform, low=0.1, high=5.0),
        _named("special.gammainc")),
    Row("functions.zeta", jss.zeta, planes(2, uniform, low=1.5, high=5.0),
        _named("special.zeta")),
    Row("functions.betainc", lambda x, y: jss.betainc(x, y, 0.5),
        planes(2, uniform, low=0.1, high=5.0), numpy=lambda x, y: special.betainc(x, y, 0.5)),
    Row("functions.norm.logpdf", jax.scipy.stats.norm.logpdf, planes(),
        lambda T, x: T.distributions.Normal(0.0, 1.0).log_prob(x)),
)  # fmt: skip
