"""Traced functions without calls: every equation stands in one list, and operands are as large as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.extend.core as jex
import numpy as np
from jax import lax
from jax.extend.source_info_util import user_context

from graphopt.forms.element_loops.primitives import ELEMENTWISE

CALLS: Final[dict[str, str]] = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
"""Primitive that calls a function -> the parameter that holds the function."""


def count_equations(function: Any, most: int) -> int:
    """Equations of a jaxpr, closed or not, with those of the functions that it calls; at most so many."""
    equations = getattr(function, "jaxpr", function).eqns
    count = len(equations)
    for equation in equations:
        if count >= most:
            return most
        called = equation.params.get(CALLS.get(equation.primitive.name, ""))
        if called is not None:
            count += count_equations(called, most - count)
    return min(count, most)


def inlined(function: Any) -> Any:
    """A closed jaxpr without calls that computes the same, under 64-bit types."""
    avals = [
        jax.ShapeDtypeStruct(v.aval.shape, np.dtype(v.aval.dtype)) for v in function.jaxpr.invars
    ]
    with jax.enable_x64(True):
        return jax.make_jaxpr(lambda *operands: _evaluated(function, operands))(*avals)


def _evaluated(function: Any, operands: Sequence[Any]) -> list[Any]:
    known = dict(zip(function.jaxpr.constvars, function.consts, strict=True))
    known |= dict(zip(function.jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else known[atom]

    for equation in function.jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        called = equation.params.get(CALLS.get(equation.primitive.name, ""))
        if called is not None:
            closed = called if hasattr(called, "consts") else jex.ClosedJaxpr(called, ())
            results = _evaluated(closed, values)
        else:
            if equation.primitive.name in ELEMENTWISE:
                values = _spread(equation, values)
            with user_context(equation.source_info.traceback):
                results = equation.primitive.bind(*values, **equation.params)
            results = results if equation.primitive.multiple_results else [results]
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in function.jaxpr.outvars]


def _spread(equation: Any, values: Sequence[Any]) -> list[Any]:
    """Operands as large as the result, where dimensions of one element stood for more."""
    (result,) = equation.outvars
    shape = tuple(result.aval.shape)
    return [
        lax.broadcast_in_dim(value, shape, range(len(shape)))
        if np.ndim(value) and np.shape(value) != shape and np.ndim(value) == len(shape)
        else value
        for value in values
    ]
