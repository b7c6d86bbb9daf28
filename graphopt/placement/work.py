"""How much work an equation is: arithmetic, memory traffic, kernels started in loops.

Rules are a table by primitive name; anything not in it counts one operation per result element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

UNKNOWN_TRIPS: Final = 10.0
"""Trip count of a `while` whose count nothing tells."""

PARALLEL_WORK: Final = 2.0e6
"""Operations from which a single kernel is worth several cores."""


@dataclass(frozen=True)
class Work:
    """Work of one equation per run.

    Attributes:
        flops: arithmetic operations.
        traffic: bytes read and written.
        launches: kernels started inside loops; 0 for an equation that is one kernel.
    """

    flops: float
    traffic: float
    launches: float = 0.0


_FREE: Final = frozenset(
    "reshape broadcast_in_dim squeeze expand_dims stop_gradient copy_p device_put "
    "bitcast_convert_type iota random_wrap random_unwrap optimization_barrier".split()
)
"""Views and values that XLA folds into whatever uses them."""

_COST_PER_ELEMENT: Final = {
    "exp": 10.0, "log": 10.0, "tanh": 12.0, "logistic": 12.0, "sin": 15.0, "cos": 15.0,
    "pow": 20.0, "erf": 15.0, "erf_inv": 20.0, "div": 4.0, "sqrt": 4.0, "rsqrt": 4.0,
    "log1p": 12.0, "expm1": 12.0, "atan2": 25.0, "sort": 60.0, "random_bits": 60.0,
    "threefry2x32": 60.0, "cumsum": 4.0,
}  # fmt: skip
"""Operations per result element of the dearer elementwise operations."""

FUSIBLE: Final = frozenset(
    "add sub mul div neg exp log tanh logistic sin cos pow integer_pow sqrt rsqrt max min abs sign "
    "select_n convert_element_type broadcast_in_dim reshape squeeze transpose slice eq ne lt le gt "
    "ge and or not xor erf erf_inv log1p expm1 square is_finite clamp iota pad concatenate rev "
    "floor ceil round rem stop_gradient copy expand_dims bitcast_convert_type".split()
)
"""Primitives that XLA can compute inside their consumers."""


def aval_bytes(aval: Any) -> int:
    """Bytes of an abstract value; 0 for tokens and such."""
    shape, dtype = getattr(aval, "shape", None), getattr(aval, "dtype", None)
    if shape is None or dtype is None:
        return 0
    return int(math.prod(shape)) * int(getattr(dtype, "itemsize", 4))


def aval_elements(aval: Any) -> int:
    """Elements of an abstract value."""
    return int(math.prod(getattr(aval, "shape", ())))


def work_of(eqn: Any) -> Work:
    """Work of a jaxpr equation, loops multiplied out."""
    rule = _RULES.get(eqn.primitive.name)
    if rule is not None:
        return rule(eqn)
    bodies = [p for p in eqn.params.values() if _is_jaxpr(p)]
    if bodies:
        return _body(bodies[0], 1.0)
    return _elementwise(eqn)


def _traffic(eqn: Any) -> float:
    return float(sum(aval_bytes(v.aval) for v in (*eqn.invars, *eqn.outvars)))


def _elementwise(eqn: Any) -> Work:
    name = eqn.primitive.name
    if name in _FREE:
        return Work(0.0, 0.0)
    elements = sum(aval_elements(v.aval) for v in eqn.outvars)
    if name.startswith(("reduce_", "arg")):
        elements = sum(aval_elements(v.aval) for v in eqn.invars)
    return Work(elements * _COST_PER_ELEMENT.get(name, 1.0), _traffic(eqn))


def _dot(eqn: Any) -> Work:
    (contract, _), _ = eqn.params["dimension_numbers"]
    shape = eqn.invars[0].aval.shape
    inner = math.prod(shape[d] for d in contract)
    return Work(2.0 * aval_elements(eqn.outvars[0].aval) * inner, _traffic(eqn))


def _convolution(eqn: Any) -> Work:
    kernel = eqn.invars[1].aval.shape
    out_channels = kernel[eqn.params["dimension_numbers"].rhs_spec[0]]
    per_output = math.prod(kernel) / max(1, out_channels)
    return Work(2.0 * aval_elements(eqn.outvars[0].aval) * per_output, _traffic(eqn))


def _indexed(eqn: Any) -> Work:
    """A gather or an update touches what it moves, not the whole array it moves it in."""
    moved = min(
        float(aval_bytes(v.aval)) for v in (eqn.invars[0], eqn.invars[-1], eqn.outvars[0])
        if aval_elements(v.aval) > 1 or v is eqn.outvars[0]
    )  # fmt: skip
    return Work(moved / 4.0, 2.0 * moved)


def _scan(eqn: Any) -> Work:
    return _body(eqn.params["jaxpr"], float(eqn.params["length"]))


def _while(eqn: Any) -> Work:
    body, cond = eqn.params["body_jaxpr"], eqn.params["cond_jaxpr"]
    inner, test = _body(body, UNKNOWN_TRIPS), _body(cond, UNKNOWN_TRIPS)
    return Work(
        inner.flops + test.flops, inner.traffic + test.traffic, inner.launches + test.launches
    )


def _cond(eqn: Any) -> Work:
    return max((_body(b, 1.0) for b in eqn.params["branches"]), key=lambda w: w.flops + w.traffic)


def _body(jaxpr: Any, trips: float) -> Work:
    """Work of a body: every operation that is no view starts one kernel, unless it holds loops."""
    works = [work_of(eqn) for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns]
    launches = sum(w.launches if w.launches else float(w.traffic > 0) for w in works)
    return Work(
        trips * sum(w.flops for w in works),
        trips * sum(w.traffic for w in works),
        trips * max(1.0, launches),
    )


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns")


_RULES: Final[dict[str, Callable[[Any], Work]]] = {
    "dot_general": _dot,
    "conv_general_dilated": _convolution,
    "gather": _indexed,
    "dynamic_slice": _indexed,
    "dynamic_update_slice": _indexed,
    "scatter": _indexed,
    "scatter-add": _indexed,
    "scatter_add": _indexed,
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


def is_parallel(work: Work) -> bool:
    """True for a single kernel that is worth several cores."""
    return not work.launches and work.flops + work.traffic / 4.0 >= PARALLEL_WORK
