"""Traced functions without calls: every equation stands in one list, and operands are as large as results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax import lax

from graphopt.forms.traced.calls import called_by
from graphopt.forms.traced.primitives import ELEMENTWISE


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
        called = called_by(equation)
        if called is not None:
            results = _evaluated(called, values)
        else:
            if equation.primitive.name in ELEMENTWISE:
                values = _spread(equation, values)
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
