"""A loop over arrays, as jax hands it to its lowering rule, and what its body carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jax.extend.core as jex
import numpy as np

ADDITIONS: Final = frozenset({"add", "add_any"})


@dataclass(frozen=True)
class Sum:
    """A carried value that every iteration adds to, and reads for nothing else.

    Attributes:
        terms: (whether it is subtracted, variable or literal of the body), of one iteration.
        equations: places in the body of the equations that add.
    """

    terms: tuple[tuple[bool, Any], ...]
    equations: tuple[int, ...]


@dataclass(frozen=True)
class Scan:
    """A loop over the rows of arrays.

    Attributes:
        body: closed jaxpr without calls, from constants, carried values and rows to carried values and rows.
        consts: number of constants.
        carry: number of carried values.
        trips: iterations.
        reverse: the last row comes first.
        unroll: iterations that the compiler is told to write out.
    """

    body: Any
    consts: int
    carry: int
    trips: int
    reverse: bool
    unroll: int

    @property
    def const_vars(self) -> list[Any]:
        """Variables that are the same in all iterations."""
        return list(self.body.jaxpr.invars[: self.consts])

    @property
    def carry_vars(self) -> list[Any]:
        """Variables of the values of the iteration before."""
        return list(self.body.jaxpr.invars[self.consts : self.consts + self.carry])

    @property
    def row_vars(self) -> list[Any]:
        """Variables of the rows that are read."""
        return list(self.body.jaxpr.invars[self.consts + self.carry :])

    @property
    def carry_outs(self) -> list[Any]:
        """What is carried on."""
        return list(self.body.jaxpr.outvars[: self.carry])

    @property
    def row_outs(self) -> list[Any]:
        """The rows that are made."""
        return list(self.body.jaxpr.outvars[self.carry :])


def counts_of(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a ``scan`` are constants, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = map(len, params["ft_in"].unpack())  # since jax 0.11
    return consts, carry


def uses(jaxpr: Any) -> Counter[Any]:
    """How often each variable is read, results of the body included."""
    atoms = [a for e in jaxpr.eqns for a in e.invars] + list(jaxpr.outvars)
    return Counter(a for a in atoms if not isinstance(a, jex.Literal))


def step_of(scan: Scan, place: int) -> int | None:
    """What a counter grows by; None for other carried values."""
    variable, out = scan.carry_vars[place], scan.carry_outs[place]
    if variable.aval.shape or variable.aval.dtype.kind not in "iu":
        return None
    for equation in scan.body.jaxpr.eqns:
        if equation.outvars[0] is out and equation.primitive.name == "add":
            first, second = equation.invars
            if isinstance(first, jex.Literal):
                first, second = second, first
            if first is variable and isinstance(second, jex.Literal):
                return int(np.asarray(second.val))
    return None


def sum_of(scan: Scan, place: int) -> Sum | None:
    """The terms of a carried value that is only added to; None for others."""
    jaxpr, counts = scan.body.jaxpr, uses(scan.body.jaxpr)
    current, out = scan.carry_vars[place], scan.carry_outs[place]
    terms: list[tuple[bool, Any]] = []
    equations: list[int] = []
    for number, equation in enumerate(jaxpr.eqns):
        if counts[current] != 1 or current is out:
            break
        if not any(atom is current for atom in equation.invars):
            continue
        found = _other(equation, current)
        if found is None:
            return None
        terms.append(found)
        equations.append(number)
        (current,) = equation.outvars
    if current is not out or counts[out] != 1 or not terms:
        return None
    return Sum(tuple(terms), tuple(equations))


def _other(equation: Any, current: Any) -> tuple[bool, Any] | None:
    """What an equation adds to a value: (whether it subtracts it, the variable or literal)."""
    name, (first, *rest) = equation.primitive.name, equation.invars
    if name not in ADDITIONS and not (name == "sub" and first is current):
        return None
    other = rest[0] if first is current else first
    (out,) = equation.outvars
    dtype = out.aval.dtype
    # The order of additions matters too much for half precision.
    sums = dtype.kind in "iuc" or (dtype.kind == "f" and dtype.itemsize >= 4)
    if not sums or out.aval.shape != current.aval.shape:
        return None
    return name == "sub", other
