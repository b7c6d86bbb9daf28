"""Sums over all iterations: of what is linear in a value, the same of the value's sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, Final

import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np

LINEAR: Final = frozenset(
    "broadcast_in_dim copy expand_dims neg reduce_sum reshape squeeze transpose".split()
)
"""Primitives of one operand that are linear in it."""


class Terms:
    """What sums over all iterations are made of.

    Args:
        equations: that make variables of one iteration.
        fixed: variables that are the same in all iterations.
    """

    def __init__(self, equations: Sequence[Any], fixed: Set[Any]) -> None:
        self._makers = {out: e for e in equations for out in e.outvars}
        self._fixed = fixed

    def is_fixed(self, atom: Any) -> bool:
        """Whether a variable or literal is the same in all iterations."""
        return isinstance(atom, jex.Literal) or atom in self._fixed

    def linear(self, variable: Any) -> tuple[Any, tuple[int, ...]] | None:
        """The equation that makes a variable, and the operands in which it is linear, others being fixed."""
        equation = self._makers.get(variable)
        if equation is None:
            return None
        name, operands = equation.primitive.name, equation.invars
        varying = tuple(n for n, a in enumerate(operands) if not self.is_fixed(a))
        shape = equation.outvars[0].aval.shape
        if name in ("add", "add_any", "sub"):
            whole = all(a.aval.shape == shape for a in operands)
            return (equation, tuple(range(len(operands)))) if whole else None
        one = name in LINEAR and len(operands) == 1
        if one or (name in ("mul", "dot_general") and len(varying) == 1):
            return equation, varying
        return None

    def product(self, variable: Any) -> Any | None:
        """The equation that makes a variable, if it is a product of two values that vary."""
        equation = self._makers.get(variable)
        if equation is None or equation.primitive.name != "dot_general":
            return None
        return None if any(map(self.is_fixed, equation.invars)) else equation

    def leaves(self, atoms: Sequence[Any]) -> list[Any]:
        """Variables whose values in all iterations the sums of variables or literals are made of."""
        found: list[Any] = []
        for value in self._passed(atoms):
            product = self.product(value)
            if product is not None:
                found += product.invars
            elif self.linear(value) is None:
                found.append(value)
        return list(dict.fromkeys(found))

    def products(self, atoms: Sequence[Any]) -> list[Any]:
        """Equations that become one product each in the sums of variables or literals."""
        found = map(self.product, self._passed(atoms))
        return [equation for equation in found if equation is not None]

    def _passed(self, atoms: Sequence[Any]) -> list[Any]:
        """Variables on the way to the leaves, each once."""
        passed: dict[Any, None] = {}
        stack = list(atoms)
        while stack:
            value = stack.pop()
            if self.is_fixed(value) or value in passed:
                continue
            passed[value] = None
            linear = self.linear(value)
            if linear is not None:
                stack += [linear[0].invars[place] for place in linear[1]]
        return list(passed)


class Totals:
    """Sums of variables over all iterations.

    Args:
        terms: what they are made of.
        value: a fixed variable or literal -> its value.
        rows: another variable -> its values in all iterations, along the first axis.
        trips: iterations.
    """

    def __init__(
        self, terms: Terms, value: Callable[[Any], Any], rows: Callable[[Any], Any], trips: int
    ) -> None:
        self._terms, self._value, self._rows, self._trips = terms, value, rows, trips
        self._known: dict[Any, Any] = {}

    def of(self, atom: Any) -> Any:
        """The sum of a variable or literal."""
        if self._terms.is_fixed(atom):
            value = self._value(atom)
            return value * np.asarray(self._trips).astype(value.dtype)
        if atom not in self._known:
            self._known[atom] = self._made(atom)
        return self._known[atom]

    def _made(self, variable: Any) -> Any:
        linear, product = self._terms.linear(variable), self._terms.product(variable)
        if linear is not None:
            equation, places = linear
            values = [
                self.of(a) if n in places else self._value(a) for n, a in enumerate(equation.invars)
            ]
            return equation.primitive.bind(*values, **equation.params)
        if product is not None:
            return self._summed_product(product)
        return jnp.sum(self._rows(variable), axis=0, dtype=variable.aval.dtype)

    def _summed_product(self, equation: Any) -> Any:
        """A sum of products is one product, whose sum goes over the iterations too."""
        (left, right), batched = equation.params["dimension_numbers"]
        rows = list(map(self._rows, equation.invars))
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
