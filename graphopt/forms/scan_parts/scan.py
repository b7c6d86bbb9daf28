"""A loop over arrays, as jax hands it to its lowering rule, and what its body carries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax.extend.core as jex
import numpy as np

from graphopt.forms.traced.calls import Flat

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
        body: from constants, carried values and rows to carried values and rows.
        consts: number of constants.
        carry: number of carried values.
        trips: iterations.
        reverse: the last row comes first.
        unroll: iterations that the compiler is told to write out.
    """

    body: Flat
    consts: int
    carry: int
    trips: int
    reverse: bool
    unroll: int

    @property
    def const_vars(self) -> tuple[Any, ...]:
        """Variables that are the same in all iterations."""
        return self.body.inputs[: self.consts]

    @property
    def carry_vars(self) -> tuple[Any, ...]:
        """Variables of the values of the iteration before."""
        return self.body.inputs[self.consts : self.consts + self.carry]

    @property
    def row_vars(self) -> tuple[Any, ...]:
        """Variables of the rows that are read."""
        return self.body.inputs[self.consts + self.carry :]

    @property
    def carry_outs(self) -> tuple[Any, ...]:
        """What is carried on."""
        return self.body.results[: self.carry]

    @property
    def row_outs(self) -> tuple[Any, ...]:
        """The rows that are made."""
        return self.body.results[self.carry :]

    @cached_property
    def readers(self) -> dict[Any, list[int]]:
        """Variable -> places of the equations that read it, once for each operand."""
        found: dict[Any, list[int]] = {}
        for number, equation in enumerate(self.body.equations):
            for atom in equation.invars:
                if not isinstance(atom, jex.Literal):
                    found.setdefault(atom, []).append(number)
        return found

    @cached_property
    def results(self) -> Counter[Any]:
        """Variables that are carried on or made, and how often."""
        return Counter(v for v in self.body.results if not isinstance(v, jex.Literal))


def counts_of(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many operands of a ``scan`` are constants, and how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = map(len, params["ft_in"].unpack())  # since jax 0.11
    return consts, carry


def step_of(scan: Scan, place: int) -> int | None:
    """What a counter grows by; None for other carried values."""
    variable, out = scan.carry_vars[place], scan.carry_outs[place]
    if variable.aval.shape or variable.aval.dtype.kind not in "iu":
        return None
    for number in scan.readers.get(variable, ()):
        equation = scan.body.equations[number]
        if equation.outvars[0] is out and equation.primitive.name == "add":
            (other,) = (a for a in equation.invars if a is not variable)
            return int(np.asarray(other.val)) if isinstance(other, jex.Literal) else None
    return None


def sum_of(scan: Scan, place: int) -> Sum | None:
    """The terms of a carried value that is only added to; None for others."""
    current, out = scan.carry_vars[place], scan.carry_outs[place]
    terms: list[tuple[bool, Any]] = []
    equations: list[int] = []
    while current is not out:
        readers = scan.readers.get(current, [])
        if len(readers) != 1 or current in scan.results:
            return None
        (number,) = readers
        equation = scan.body.equations[number]
        found = _other(equation, current)
        if found is None:
            return None
        terms.append(found)
        equations.append(number)
        (current,) = equation.outvars
    alone = not scan.readers.get(out) and scan.results[out] == 1
    return Sum(tuple(terms), tuple(equations)) if terms and alone else None


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
