"""What stands ahead of a recurrence, in it, and behind it.

A body is cut in three. *Ahead* stands what depends on the rows that are read alone, *behind* it what no
later iteration needs. Both are computed for all iterations at once. The loop keeps the *core*: what leads
from the values of one iteration to those of the next. Values that are read behind the loop are put in arrays
there; simple ones are rather computed again from fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from graphopt.forms.scan_parts.estimates import kept_ns, together_ns
from graphopt.forms.scan_parts.known import Known, known_of
from graphopt.forms.scan_parts.movable import AGAIN, FREE, nbytes
from graphopt.forms.scan_parts.scan import Scan, Sum, sum_of
from graphopt.forms.scan_parts.totals import Terms
from graphopt.forms.traced.slices import leading_to, read_by, variables
from graphopt.machine import CpuCosts

MOST_TRIED: Final = 32
"""Values of which each is tried to be kept instead of computed again."""

MOST_READ: Final = 10_000
"""Equations that are read for that."""


@dataclass(frozen=True)
class Parts:
    """A loop's body in three parts; variables are those of its jaxpr.

    Attributes:
        known: the loop, and what of it is the same in all iterations, or known in front of it.
        sums: place of a carried value that is only added to -> its terms.
        terms: what the sums are made of.
        ahead: equations that are computed for all iterations, ahead of the loop.
        core: equations that stay.
        behind: equations that are computed for all iterations, behind the loop.
        rows: known variables that the core reads.
        kept: variables of the core, carried ones included, that are put in arrays.
        wanted: variables whose values in all iterations make the results.
    """

    known: Known
    sums: dict[int, Sum]
    terms: Terms
    ahead: tuple[Any, ...]
    core: tuple[Any, ...]
    behind: tuple[Any, ...]
    rows: tuple[Any, ...]
    kept: tuple[Any, ...]
    wanted: tuple[Any, ...]

    @property
    def scan(self) -> Scan:
        """The loop."""
        return self.known.scan

    @cached_property
    def states(self) -> tuple[int, ...]:
        """Places of the values that the core carries."""
        known = self.known
        gone = {*known.steps, *known.delayed, *known.same, *self.sums}
        return tuple(place for place in range(self.scan.carry) if place not in gone)

    @cached_property
    def made(self) -> tuple[Any, ...]:
        """Variables of which arrays are made outside of the loop."""
        outs = {v for e in (*self.ahead, *self.behind) for v in e.outvars}
        return tuple(v for v in dict.fromkeys((*self.rows, *self.wanted)) if v in outs)

    @property
    def more_bytes(self) -> int:
        """Bytes of arrays that the loop does not have by itself."""
        results = self.scan.row_outs
        arrays = {v for v in (*self.made, *self.kept) if v not in results}
        return self.scan.trips * sum(map(nbytes, arrays))

    @property
    def passing_bytes(self) -> int:
        """Bytes of all that is computed outside of the loop, were nothing fused."""
        outside = (e for e in (*self.ahead, *self.behind) if e.primitive.name not in FREE)
        return self.scan.trips * sum(nbytes(v) for e in outside for v in e.outvars)

    @property
    def moves(self) -> bool:
        """Whether the loop is rid of any work."""
        stays = set(map(id, self.core))
        moved = (e for e in (*self.ahead, *self.behind) if id(e) not in stays)
        return bool(self.sums) or any(e.primitive.name not in FREE for e in moved)


def parts_of(scan: Scan, costs: CpuCosts) -> Parts:
    """The three parts of a loop's body.

    Args:
        scan: the loop.
        costs: of the machine: they say what is computed again.
    """
    known = known_of(scan)
    gone = {*known.same, *known.steps, *known.delayed}
    places = [place for place in range(scan.carry) if place not in gone]
    sums = {p: found for p in places if (found := sum_of(scan, p)) is not None}
    adding = {number for found in sums.values() for number in found.equations}
    added = {id(scan.body.equations[number]) for number in adding}
    late = [e for e in known.late if id(e) not in added]
    terms = Terms([*known.ahead, *late], known.fixed)
    wanted = _wanted(known, sums, terms)
    recurrent = variables(scan.carry_outs[p] for p in places if p not in sums)
    core, behind = _late_parts(late, recurrent, wanted, known)
    kept, again = _kept(core, behind, wanted, known, costs)
    rows, inner = _rows(core, known, recurrent)
    outside = _in_order(scan, [*again, *behind])
    carried = variables(scan.carry_outs[p] for p in known.delayed)
    ahead = leading_to(known.ahead, [*rows, *read_by(outside), *wanted, *carried])
    return Parts(
        known, sums, terms, tuple(ahead), _in_order(scan, [*core, *inner]), outside,
        tuple(rows), tuple(kept), tuple(wanted),
    )  # fmt: skip


def _in_order(scan: Scan, equations: Sequence[Any]) -> tuple[Any, ...]:
    """Equations as they stand in the body."""
    chosen = set(map(id, equations))
    return tuple(e for e in scan.body.equations if id(e) in chosen)


def _wanted(known: Known, sums: dict[int, Sum], terms: Terms) -> list[Any]:
    """Variables whose values in all iterations make the results."""
    added = [term for found in sums.values() for _, term in found.terms]
    wanted = [*variables(known.scan.row_outs), *terms.leaves(added)]
    return [v for v in dict.fromkeys(wanted) if v not in known.fixed]


def _late_parts(
    late: Sequence[Any], recurrent: Sequence[Any], wanted: Sequence[Any], known: Known
) -> tuple[list[Any], list[Any]]:
    """The core, and what stands behind it."""
    needed = leading_to(late, [*recurrent, *wanted])
    stuck = [out for e in needed if not known.is_movable(e) for out in e.outvars]
    core = leading_to(late, [*recurrent, *stuck])
    inside = set(map(id, core))
    return core, [e for e in needed if id(e) not in inside]


def _kept(
    core: Sequence[Any], behind: Sequence[Any], wanted: Sequence[Any], known: Known, costs: CpuCosts
) -> tuple[list[Any], list[Any]]:
    """Variables of the core that are put in arrays, and equations of it that are computed again behind it."""
    made = {out for e in core for out in e.outvars} | set(known.scan.carry_vars)
    made -= known.fixed | known.known
    crossing = [v for v in dict.fromkeys([*read_by(behind), *wanted]) if v in made]
    if not behind:
        return crossing, []
    trips = known.scan.trips

    array_ns = {v: kept_ns(v, trips, costs) for v in made}
    again_ns = {id(e): together_ns(e, costs) for e in core}

    def cost(found: tuple[list[Any], list[Any]]) -> float:
        kept, again = found
        return sum(array_ns[v] for v in kept) + sum(again_ns[id(e)] for e in again)

    stuck = [out for e in core if e.primitive.name not in AGAIN for out in e.outvars]
    bases = [*(v for v in known.scan.carry_vars if v in made), *stuck]
    best: tuple[list[Any], list[Any]] = (crossing, [])
    tries = min(MOST_TRIED, MOST_READ // max(len(core), 1))
    for value in (None, *crossing[:tries]):
        if value in best[0]:
            continue
        tried = bases if value is None else [*bases, value]
        found = _again(crossing, tried, core, known)
        if cost(found) < cost(best):
            best, bases = found, tried
    return best


def _again(
    values: Sequence[Any], bases: Sequence[Any], core: Sequence[Any], known: Known
) -> tuple[list[Any], list[Any]]:
    """What is kept, and computed again, if some variables of the core may be kept."""
    may_keep = set(bases)
    available = {*known.fixed, *known.known, *bases}
    made = []
    for equation in core:
        simple = equation.primitive.name in AGAIN and available.isdisjoint(equation.outvars)
        if simple and available.issuperset(variables(equation.invars)):
            available.update(equation.outvars)
            made.append(equation)
    again = leading_to(made, [v for v in values if v in available and v not in may_keep])
    kept = [v for v in values if v not in available or v in may_keep]
    kept += [v for v in read_by(again) if v in may_keep]
    return list(dict.fromkeys(kept)), again


def _rows(
    core: Sequence[Any], known: Known, recurrent: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Known values that the core reads, and equations by which it makes them of smaller ones itself."""
    makers = {out: e for e in known.ahead for out in e.outvars}
    rows = [v for v in dict.fromkeys([*read_by(core), *recurrent]) if v in known.known]
    inner: list[Any] = []
    stack = list(rows)
    while stack:
        value = stack.pop()
        equation = makers.get(value)
        if equation is None or equation.primitive.name not in AGAIN or value not in rows:
            continue
        read = [v for v in variables(equation.invars) if v in known.known and v not in rows]
        if sum(map(nbytes, read)) < nbytes(value):
            rows.remove(value)
            rows += read
            stack += read
            inner.append(equation)
    return rows, inner
