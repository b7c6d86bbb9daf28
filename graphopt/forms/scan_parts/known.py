"""What of a loop's body is the same in all iterations, or known in front of the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import jax.extend.core as jex

from graphopt.forms.scan_parts.movable import DRAWS, is_movable
from graphopt.forms.scan_parts.scan import Scan, step_of

MOST_BYTES: Final = 1 << 26
"""Largest array that is made of all iterations of one value."""


def variables(atoms: Iterable[Any]) -> list[Any]:
    """Those that are no literals, each once."""
    return list(dict.fromkeys(a for a in atoms if not isinstance(a, jex.Literal)))


def leading_to(equations: Sequence[Any], wanted: Iterable[Any]) -> list[Any]:
    """The equations that variables need, in order."""
    needed, found = set(wanted), []
    for equation in reversed(equations):
        if any(out in needed for out in equation.outvars):
            found.append(equation)
            needed.update(variables(equation.invars))
    return found[::-1]


def read_by(equations: Sequence[Any]) -> list[Any]:
    """Variables that equations read and do not make."""
    made = {out for e in equations for out in e.outvars}
    return [v for v in variables(a for e in equations for a in e.invars) if v not in made]


class Known:
    """Sorts the equations of a body by what they read.

    Attributes:
        scan: the loop.
        same: places of carried values that stay as they are.
        steps: place of a carried counter -> what it grows by.
        delayed: places of carried values that are a known value of the iteration before.
        fixed: variables that are the same in all iterations.
        known: others that depend on rows and counters alone.
        once: equations of fixed variables.
        ahead: equations of known variables.
        late: all others.
    """

    def __init__(self, scan: Scan) -> None:
        """Reads a loop's body."""
        self.scan = scan
        carried = list(zip(scan.carry_vars, scan.carry_outs, strict=True))
        self.same = frozenset(place for place, (v, out) in enumerate(carried) if out is v)
        steps = {place: step_of(scan, place) for place in range(scan.carry)}
        self.steps = {p: s for p, s in steps.items() if s is not None and p not in self.same}
        self.delayed: frozenset[int] = frozenset()
        self._read()
        others = frozenset(range(scan.carry)) - self.same - self.steps.keys()
        self.delayed = frozenset(
            p for p in others for out in variables([carried[p][1]]) if out in self.known
        )
        if self.delayed:
            self._read()

    def _read(self) -> None:
        scan, jaxpr = self.scan, self.scan.body.jaxpr
        carried = scan.carry_vars
        self.fixed = {*jaxpr.constvars, *scan.const_vars, *(carried[p] for p in self.same)}
        self.known = {*scan.row_vars, *(carried[p] for p in (*self.steps, *self.delayed))}
        self.once: list[Any] = []
        self.ahead: list[Any] = []
        self.late: list[Any] = []
        for equation in jaxpr.eqns:
            read = variables(equation.invars)
            drawn = equation.primitive.name in DRAWS
            if self.fixed.issuperset(read) and not equation.effects and not drawn:
                self.fixed.update(equation.outvars)
                self.once.append(equation)
            elif self.is_movable(equation) and all(
                v in self.fixed or v in self.known for v in read
            ):
                self.known.update(equation.outvars)
                self.ahead.append(equation)
            else:
                self.late.append(equation)

    def is_movable(self, equation: Any) -> bool:
        """Whether an equation can be computed for all iterations at once, at a gain.

        Many small products of two values that vary take longer than one in each iteration.
        """
        operands = variables(equation.invars)
        if equation.primitive.name == "dot_general" and not self.fixed.intersection(operands):
            return False
        return is_movable(equation, MOST_BYTES / max(self.scan.trips, 1))
