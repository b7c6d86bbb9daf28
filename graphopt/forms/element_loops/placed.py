"""What differs from place to place of a batch though it was made of constants: made once, ahead of the loop.

An array of one of several batched dimensions, spread over the others, is no block by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.extend.core as jex

from graphopt.forms.element_loops.batch import Batch
from graphopt.forms.element_loops.condition import part
from graphopt.forms.traced.calls import closed


@dataclass(frozen=True)
class Split:
    """A function of constants and a state, in two.

    Attributes:
        ahead: closed jaxpr from the constants to arrays of the batch; None where there are none.
        rest: closed jaxpr from the constants, those arrays and the state to the results.
        count: number of those arrays.
    """

    ahead: Any | None
    rest: Any
    count: int


def split(function: Any, consts: int, batch: Batch) -> Split:
    """Takes out of a closed jaxpr what is made of its first `consts` operands place by place."""
    jaxpr = function.jaxpr
    fixed = {*jaxpr.constvars, *jaxpr.invars[:consts]}
    found, kept = [], []
    for equation in jaxpr.eqns:
        if all(isinstance(atom, jex.Literal) or atom in fixed for atom in equation.invars):
            fixed.update(equation.outvars)
            if _by_place(equation, batch):
                found += equation.outvars
                continue
        kept.append(equation)
    if not found:
        return Split(None, function, 0)
    ahead = part(closed(jaxpr.replace(invars=jaxpr.invars[:consts]), function.consts), found)
    inputs = [*jaxpr.invars[:consts], *found, *jaxpr.invars[consts:]]
    rest = closed(jaxpr.replace(invars=inputs, eqns=kept), function.consts)
    return Split(ahead, rest, len(found))


def _by_place(equation: Any, batch: Batch) -> bool:
    """Whether an equation makes an array of the batch of what is none, other at each place."""
    name = equation.primitive.name
    (result, *_) = equation.outvars
    at = batch.found(result.aval.shape)
    if at is None or name not in ("iota", "broadcast_in_dim"):
        return False
    if name == "iota":
        return equation.params["dimension"] in batch.own(at)
    made_of = equation.invars[0].aval.shape
    kept = equation.params["broadcast_dimensions"]
    return bool(set(kept) & set(batch.own(at))) and batch.found(made_of) is None
