"""Equations that treat the elements of a batch apart, computed for a block of them.

A value is *of the batch* where its element at one place depends on what stands at that place alone; all
others are *shared*. Equations are computed with blocks in place of batches as long as rows of the tables
hold; the first that does not is `Entangled`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
import numpy as np

from graphopt.forms.element_loops.batch import Batch, Entangled, Value
from graphopt.forms.element_loops.moves import MOVES, look_up, spread_shared
from graphopt.forms.element_loops.products import product
from graphopt.forms.traced.primitives import ELEMENTWISE


def evaluate(function: Any, operands: Sequence[Value], batch: Batch) -> list[Value]:
    """Computes a closed jaxpr without calls for a block.

    Raises:
        Entangled: an equation does not treat the elements of the batch apart.
    """
    known = {
        variable: Value(array, None)
        for variable, array in zip(function.jaxpr.constvars, function.consts, strict=True)
    }
    known |= dict(zip(function.jaxpr.invars, operands, strict=True))

    def read(atom: Any) -> Value:
        return Value(atom.val, None) if isinstance(atom, jex.Literal) else known[atom]

    for equation in function.jaxpr.eqns:
        values = [read(atom) for atom in equation.invars]
        try:
            made = _results(equation, values, batch)
        except Entangled:
            raise Entangled(equation.primitive.name) from None
        known.update(zip(equation.outvars, made, strict=True))
    return [read(atom) for atom in function.jaxpr.outvars]


def _results(equation: Any, values: Sequence[Value], batch: Batch) -> list[Value]:
    name, places = equation.primitive.name, {v.at for v in values}
    result = equation.outvars[0].aval.shape if equation.outvars else ()
    params: dict[str, Any] = equation.params
    to: int | None = None
    if places <= {None}:
        spread = spread_shared(params, batch) if name == "broadcast_in_dim" else None
        params, to = spread or (params, None)
    elif name == "dot_general":
        return [product(values[0], values[1], equation, batch)]
    elif name in ELEMENTWISE:
        shared = [np.ndim(v.array) for v in values if v.at is None]
        (to,) = places - {None} if len(places - {None}) == 1 else (None,)
        if any(shared) or to is None or not batch.stands(result, to):
            raise Entangled
    elif name in MOVES and len(places) == 1:
        params, to = MOVES[name](params, batch, values[0].at or 0)
    elif name == "gather" and [v.at for v in values] == [None, 0]:
        params, to = look_up(params, batch, len(result))
    else:
        raise Entangled
    made = equation.primitive.bind(*(value.array for value in values), **params)
    made = made if equation.primitive.multiple_results else [made]
    return [Value(array, to) for array in made]
