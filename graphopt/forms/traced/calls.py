"""Calls of traced functions, and functions whose calls are written where they stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax.extend.core as jex

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


def closed(jaxpr: Any, consts: Sequence[Any]) -> Any:
    """A jaxpr with the values of its constants."""
    # jax 0.12 exports the class, but not in a way that mypy takes for one.
    return jex.ClosedJaxpr(jaxpr, consts)  # type: ignore[attr-defined, unused-ignore]


def called_by(equation: Any) -> Any | None:
    """The closed jaxpr that an equation calls; None if it calls none."""
    called = equation.params.get(CALLS.get(equation.primitive.name, ""))
    if called is None or hasattr(called, "consts"):
        return called
    return closed(called, ())


@dataclass(frozen=True)
class Flat:
    """A traced function without calls.

    Attributes:
        inputs: variables.
        equations: in order; each variable is made once.
        results: variables or literals.
        constants: variable -> its value.
        template: the jaxpr that it was made of.
    """

    inputs: tuple[Any, ...]
    equations: tuple[Any, ...]
    results: tuple[Any, ...]
    constants: dict[Any, Any]
    template: Any

    def computing(
        self, equations: Sequence[Any], inputs: Sequence[Any], results: Sequence[Any]
    ) -> Callable[..., Any]:
        """A function of some variables; its equations keep their places in the source."""
        jaxpr = self.template.replace(
            constvars=[], invars=list(inputs), outvars=list(results), eqns=list(equations)
        )
        function: Callable[..., Any] = jex.jaxpr_as_fun(closed(jaxpr, ()))
        return function


def flattened(function: Any) -> Flat:
    """A closed jaxpr with what it calls; nothing is traced anew."""
    equations: list[Any] = []
    constants: dict[Any, Any] = {}
    inputs = tuple(function.jaxpr.invars)
    results = _written(function, inputs, equations, constants)
    return Flat(inputs, tuple(equations), tuple(results), constants, function.jaxpr)


def _written(
    function: Any, operands: Sequence[Any], equations: list[Any], constants: dict[Any, Any]
) -> list[Any]:
    """Adds the equations of a function, its variables under names of their own; its results."""
    jaxpr = function.jaxpr
    names = dict(zip(jaxpr.invars, operands, strict=True))
    for variable, value in zip(jaxpr.constvars, function.consts, strict=True):
        names[variable] = jex.Var(variable.aval)
        constants[names[variable]] = value

    def read(atoms: Sequence[Any]) -> list[Any]:
        return [a if isinstance(a, jex.Literal) else names[a] for a in atoms]

    for equation in jaxpr.eqns:
        values, called = read(equation.invars), called_by(equation)
        if called is None:
            results = [jex.Var(v.aval) for v in equation.outvars]
            equations.append(equation.replace(invars=values, outvars=results))
        else:
            results = _written(called, values, equations, constants)
        names.update(zip(equation.outvars, results, strict=True))
    return read(jaxpr.outvars)
