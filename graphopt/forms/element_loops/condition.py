"""The condition of a loop, taken apart: whether an element goes on, and what holds for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex

from graphopt.forms.traced.calls import closed
from graphopt.forms.traced.slices import leading_to, variables


@dataclass(frozen=True)
class Condition:
    """When a loop goes on: while any element does, and all that is shared holds.

    Attributes:
        element: closed jaxpr with one result, bool, an array of the batch: which elements go on, or
            which have ended.
        ends: it is of those that have ended.
        shared: closed jaxpr whose results must all hold: bool, scalars.
        own: jax leaves elements alone that have ended; otherwise the body must.
    """

    element: Any
    ends: bool
    shared: Any
    own: bool


def take_apart(function: Any) -> Condition | None:
    """Takes the condition of a loop apart; None where it is not of this kind.

    Args:
        function: the condition, a closed jaxpr without calls with one result: an array of bool where jax
            has made one loop of many, else a scalar.
    """
    (result,) = function.jaxpr.outvars
    if result.aval.shape:
        return Condition(function, False, part(function, []), own=True)
    made = {v: equation for equation in function.jaxpr.eqns for v in equation.outvars}
    elements, shared = [], []
    for term in _terms(result, made):
        found = _of_elements(term, made)
        if found is None:
            shared.append(term)
        else:
            elements.append(found)
    if len(elements) != 1:
        return None
    element, ends = elements[0]
    return Condition(part(function, [element]), ends, part(function, shared), own=False)


def _terms(atom: Any, made: dict[Any, Any]) -> list[Any]:
    """What must hold, each for itself."""
    equation = None if isinstance(atom, jex.Literal) else made.get(atom)
    if equation is None or equation.primitive.name != "and":
        return [atom]
    return [term for operand in equation.invars for term in _terms(operand, made)]


def _of_elements(atom: Any, made: dict[Any, Any]) -> tuple[Any, bool] | None:
    """The array of which any element must hold, or not all may (True); None for another condition."""
    ends, name = False, "reduce_or"
    equation = None if isinstance(atom, jex.Literal) else made.get(atom)
    if equation is not None and equation.primitive.name == "not":
        ends, name = True, "reduce_and"
        equation = made.get(equation.invars[0])
    if equation is None or equation.primitive.name != name:
        return None
    (operand,) = equation.invars
    return (operand, ends) if len(equation.params["axes"]) == len(operand.aval.shape) else None


def part(function: Any, results: list[Any]) -> Any:
    """The equations of a function that some results need."""
    kept = leading_to(function.jaxpr.eqns, variables(results))
    jaxpr = function.jaxpr.replace(eqns=kept, outvars=list(results))
    return closed(jaxpr, function.consts)
