"""Elementwise functions (array API standard, "Element-wise functions")."""

from __future__ import annotations

from typing import Any, Final

from graphopt.lazy.core import dtypes
from graphopt.lazy.core.node import Node, Op
from graphopt.lazy.ops.elementwise import OPS
from graphopt.lazy.record import operands, recorder
from graphopt.lazy.record.beside_numbers import record_number
from graphopt.lazy.record.composites import composite
from graphopt.lazy.record.operands import node_of
from graphopt.lazy.record.recorder import record1, record2
from graphopt.lazy.record.tensor_base import TensorBase

_UNARY: Final[dict[str, str]] = {
    "abs": "Absolute value; of complex numbers, the magnitude.",
    "acos": "Inverse cosine, in radians.",
    "acosh": "Inverse hyperbolic cosine.",
    "asin": "Inverse sine, in radians.",
    "asinh": "Inverse hyperbolic sine.",
    "atan": "Inverse tangent, in radians.",
    "atanh": "Inverse hyperbolic tangent.",
    "bitwise_invert": "Every bit inverted.",
    "ceil": "Rounded towards plus infinity.",
    "conj": "Complex conjugate.",
    "cos": "Cosine of radians.",
    "cosh": "Hyperbolic cosine.",
    "erf": "Error function (beyond the standard).",
    "exp": "Exponential.",
    "expm1": "exp(x) - 1, exact near zero.",
    "floor": "Rounded towards minus infinity.",
    "imag": "Imaginary part.",
    "isfinite": "Whether neither infinite nor NaN.",
    "isinf": "Whether infinite.",
    "isnan": "Whether NaN.",
    "log": "Natural logarithm.",
    "log1p": "log(1 + x), exact near zero.",
    "log2": "Logarithm to base 2.",
    "log10": "Logarithm to base 10.",
    "logical_not": "Logical negation.",
    "negative": "Negation.",
    "positive": "The operand itself.",
    "real": "Real part.",
    "reciprocal": "1 / x.",
    "round": "Rounded to the nearest integer, ties to even.",
    "rsqrt": "1 / sqrt(x) (beyond the standard).",
    "sign": "-1, 0 or 1; of complex numbers, x / abs(x).",
    "signbit": "Whether the sign bit is set.",
    "sin": "Sine of radians.",
    "sinh": "Hyperbolic sine.",
    "sqrt": "Square root.",
    "square": "x * x.",
    "tan": "Tangent of radians.",
    "tanh": "Hyperbolic tangent.",
    "trunc": "Rounded towards zero.",
}

_BINARY: Final[dict[str, str]] = {
    "add": "Sum.",
    "atan2": "Angle of the point (x2, x1), in radians.",
    "bitwise_and": "Bitwise and.",
    "bitwise_left_shift": "Bits shifted left.",
    "bitwise_or": "Bitwise or.",
    "bitwise_right_shift": "Bits shifted right, keeping the sign.",
    "bitwise_xor": "Bitwise exclusive or.",
    "copysign": "Magnitude of x1 with the sign of x2.",
    "divide": "Quotient.",
    "equal": "x1 == x2.",
    "floor_divide": "Quotient rounded towards minus infinity.",
    "greater": "x1 > x2.",
    "greater_equal": "x1 >= x2.",
    "hypot": "sqrt(x1**2 + x2**2) without overflow.",
    "less": "x1 < x2.",
    "less_equal": "x1 <= x2.",
    "logaddexp": "log(exp(x1) + exp(x2)).",
    "logical_and": "Logical and.",
    "logical_or": "Logical or.",
    "logical_xor": "Logical exclusive or.",
    "maximum": "The larger; NaN if either is.",
    "minimum": "The smaller; NaN if either is.",
    "multiply": "Product.",
    "nextafter": "The next representable number from x1 towards x2.",
    "not_equal": "x1 != x2.",
    "pow": "x1 to the power x2.",
    "remainder": "Remainder with the sign of x2.",
    "subtract": "Difference.",
}


def _unary(op: Op, doc: str) -> Any:
    def function(x: Any, /) -> Any:
        return record1(op, x._node if isinstance(x, TensorBase) else node_of(x, op.name))

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"{doc}\n\nRaises:\n    LazyTypeError: a dtype that it does not take.\n"
    return function


def _binary(op: Op, doc: str) -> Any:
    def function(x1: Any, x2: Any, /) -> Any:
        if isinstance(x1, TensorBase):
            if isinstance(x2, TensorBase):
                return record2(op, x1._node, x2._node)
            if type(x2) is float or type(x2) is int:
                return record_number(op, x1._node, x2)
        return record2(op, *operands.pair(op.name, x1, x2))

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = (
        f"{doc}\n\nRaises:\n    LazyTypeError: dtypes that it does not take.\n"
        "    LazyValueError: shapes that do not broadcast.\n"
    )
    return function


FUNCTIONS: Final[dict[str, Any]] = {
    **{name: _unary(OPS[name], doc) for name, doc in _UNARY.items()},
    **{name: _binary(OPS[name], doc) for name, doc in _BINARY.items()},
}
"""Elementwise functions by name; `clip` is apart."""


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Values limited to [min, max]; the result has the dtype of `x`.

    Raises:
        LazyTypeError: a complex or boolean dtype.
    """
    node = operands.node_of(x, "clip")
    return _clip(recorder.hold(node), _bound(min, node), _bound(max, node))


def _bound(bound: Any, node: Node) -> Any:
    """A limit of `clip` that the dtype can hold."""
    dtype = node.aval.dtype
    if type(bound) is int and dtype.kind in ("signed", "unsigned"):
        info = dtypes.iinfo_of(dtype)
        return info.min if bound < info.min else info.max if bound > info.max else bound
    return bound


@composite()
def _clip(x: Any, low: Any, high: Any) -> Any:
    node = x._node
    for bound, op in ((low, OPS["maximum"]), (high, OPS["minimum"])):
        if bound is not None:
            node = record2(op, node, operands.cast(bound._node, node.aval.dtype))._node
    return record1(OPS["positive"], node)
