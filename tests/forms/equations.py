"""Operations as forms see them, taken from traced functions."""

import jax
import numpy as np

from graphopt.forms import Array, Operation


def operation_of(function, primitive, *args):
    """The first equation of a traced function with this primitive."""
    return _find(jax.make_jaxpr(function)(*args).jaxpr, primitive)


def _find(jaxpr, primitive):
    for equation in jaxpr.eqns:
        if equation.primitive.name == primitive:
            return Operation(
                primitive, _arrays(equation.invars), _arrays(equation.outvars), equation.params
            )
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", None)
            found = None if inner is None else _find(inner, primitive)
            if found is not None:
                return found
    return None


def _arrays(variables):
    return tuple(Array(v.aval.shape, np.dtype(v.aval.dtype)) for v in variables)
