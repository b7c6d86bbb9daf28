"""Sums over all iterations: of what is linear in a value, the same of the value's sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax.extend.core as jex
import jax.numpy as jnp

LINEAR: Final = frozenset(
    "broadcast_in_dim copy expand_dims neg reduce_sum reshape squeeze transpose".split()
)
"""Primitives of one operand that are linear in it."""


class Totals:
    """Sums of variables of a body over all iterations.

    Args:
        equations: that make variables behind the loop.
        fixed: variables that are the same in all iterations.
        value: a fixed variable -> its value.
        rows: another variable -> its values in all iterations, along the first axis.
        trips: iterations.
    """

    def __init__(
        self,
        equations: Sequence[Any],
        fixed: set[Any],
        value: Callable[[Any], Any],
        rows: Callable[[Any], Any],
        trips: int,
    ) -> None:
        self.makers = {out: e for e in equations for out in e.outvars}
        self.fixed, self.value, self.rows, self.trips = fixed, value, rows, trips

    def of(self, atom: Any) -> Any:
        """The sum of a variable or literal."""
        if isinstance(atom, jex.Literal) or atom in self.fixed:
            value = self.value(atom)
            return value * jnp.asarray(self.trips, value.dtype)
        equation = self.makers.get(atom)
        apart = () if equation is None else apart_by(equation, self.fixed)
        if equation is None or apart is None or not apart:
            if equation is not None and _joins_both(equation, self.fixed):
                return self._product(equation)
            return jnp.sum(self.rows(atom), axis=0, dtype=atom.aval.dtype)
        values = [
            self.of(a) if n in apart else self.value(a) for n, a in enumerate(equation.invars)
        ]
        return equation.primitive.bind(*values, **equation.params)

    def _product(self, equation: Any) -> Any:
        """A sum of products is one product, whose sum goes over the iterations too."""
        (left, right), batched = equation.params["dimension_numbers"]
        rows = list(map(self.rows, equation.invars))
        summed = [(0, *(d + 1 for d in dims)) for dims in (left, right)]
        merged = 0
        if tuple(left) == tuple(right) == tuple(range(len(left))):
            # One dimension: compilers copy arrays to sum over more.
            merged = len(left)
            rows = [x.reshape(-1, *x.shape[merged + 1 :]) for x in rows]
            summed = [(0,), (0,)]
        more = tuple(tuple(d + 1 - merged for d in dims) for dims in batched)
        params = dict(equation.params, dimension_numbers=(tuple(summed), more))
        return equation.primitive.bind(*rows, **params)


def apart_by(equation: Any, fixed: set[Any]) -> tuple[int, ...]:
    """Places of the operands in which an equation is linear, together, others being fixed; () for none."""
    name, operands = equation.primitive.name, equation.invars
    varying = tuple(
        n for n, a in enumerate(operands) if not isinstance(a, jex.Literal) and a not in fixed
    )
    if name in LINEAR and len(operands) == 1:
        return varying
    if name in ("add", "add_any", "sub") and all(
        a.aval.shape == equation.outvars[0].aval.shape for a in operands
    ):
        return tuple(range(len(operands)))
    if name in ("mul", "dot_general") and len(varying) == 1:
        return varying
    return ()


def _joins_both(equation: Any, fixed: set[Any]) -> bool:
    name, operands = equation.primitive.name, equation.invars
    return name == "dot_general" and not any(
        isinstance(a, jex.Literal) or a in fixed for a in operands
    )


def read_by_total(atom: Any, equations: Sequence[Any], fixed: set[Any]) -> list[Any]:
    """Variables whose rows the sum of a variable or literal is made of."""
    if isinstance(atom, jex.Literal) or atom in fixed:
        return []
    makers = {out: e for e in equations for out in e.outvars}
    equation = makers.get(atom)
    if equation is None:
        return [atom]
    if apart := apart_by(equation, fixed):
        return [v for n in apart for v in read_by_total(equation.invars[n], equations, fixed)]
    return list(equation.invars) if _joins_both(equation, fixed) else [atom]
