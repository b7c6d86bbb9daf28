"""What of a loop's body is the same in all iterations, or known in front of the loop."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Final

from graphopt.forms.scan_parts.movable import DRAWS, is_movable
from graphopt.forms.scan_parts.scan import Scan, step_of
from graphopt.forms.traced.slices import variables

MOST_BYTES: Final = 1 << 26
"""Largest array that is made of all iterations of one value."""


@dataclass(frozen=True)
class Known:
    """The equations of a loop's body, sorted by what they read; variables are those of the body.

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

    scan: Scan
    same: frozenset[int]
    steps: dict[int, int]
    delayed: frozenset[int]
    fixed: frozenset[Any]
    known: frozenset[Any]
    once: tuple[Any, ...]
    ahead: tuple[Any, ...]
    late: tuple[Any, ...]

    def is_movable(self, equation: Any) -> bool:
        """Whether an equation can be computed for all iterations at once, at a gain."""
        return _moves(equation, self.scan, self.fixed)


def known_of(scan: Scan) -> Known:
    """Reads a loop's body, twice if it carries known values on."""
    carried = list(zip(scan.carry_vars, scan.carry_outs, strict=True))
    same = frozenset(place for place, (v, out) in enumerate(carried) if out is v)
    found = {place: step_of(scan, place) for place in range(scan.carry)}
    steps = {p: step for p, step in found.items() if step is not None and p not in same}
    first = _read(scan, same, steps, frozenset())
    others = frozenset(range(scan.carry)) - same - steps.keys()
    delayed = frozenset(p for p in others for v in variables([carried[p][1]]) if v in first.known)
    return _read(scan, same, steps, delayed) if delayed else first


def _read(
    scan: Scan, same: frozenset[int], steps: dict[int, int], delayed: frozenset[int]
) -> Known:
    carried = scan.carry_vars
    fixed = {*scan.body.constants, *scan.const_vars, *(carried[p] for p in same)}
    known = {*scan.row_vars, *(carried[p] for p in (*steps, *delayed))}
    once, ahead, late = [], [], []
    for equation in scan.body.equations:
        read = variables(equation.invars)
        drawn = equation.primitive.name in DRAWS
        if fixed.issuperset(read) and not equation.effects and not drawn:
            fixed.update(equation.outvars)
            once.append(equation)
        elif all(v in fixed or v in known for v in read) and _moves(equation, scan, fixed):
            known.update(equation.outvars)
            ahead.append(equation)
        else:
            late.append(equation)
    return Known(
        scan, same, steps, delayed, frozenset(fixed), frozenset(known),
        tuple(once), tuple(ahead), tuple(late),
    )  # fmt: skip


def _moves(equation: Any, scan: Scan, fixed: Set[Any]) -> bool:
    """Many small products of two values that vary take longer than one in each iteration."""
    product = equation.primitive.name == "dot_general"
    if product and fixed.isdisjoint(variables(equation.invars)):
        return False
    return is_movable(equation, MOST_BYTES / max(scan.trips, 1))
