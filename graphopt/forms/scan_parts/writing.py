"""Writes a loop in its three parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import lax

from graphopt.forms.scan_parts.parts import Parts
from graphopt.forms.scan_parts.totals import Totals
from graphopt.forms.traced.slices import leading_to, read_by, variables


class Writer:
    """Computes a loop from its operands, part by part."""

    def __init__(self, parts: Parts, operands: Sequence[Any]) -> None:
        """Nothing is computed yet.

        Args:
            parts: the loop's body in parts.
            operands: constants, carried values, and arrays whose rows are read.
        """
        self.parts, self.scan = parts, parts.scan
        consts, carry = self.scan.consts, self.scan.carry
        self.start = list(operands[consts : consts + carry])
        self.fixed = dict(self.scan.body.constants)
        self.fixed |= zip(self.scan.const_vars, operands[:consts], strict=True)
        self.fixed |= {self.scan.carry_vars[p]: self.start[p] for p in parts.known.same}
        self.rows = dict(zip(self.scan.row_vars, operands[consts + carry :], strict=True))
        """Variable -> its values in all iterations, [trips, *dims], in the order of the rows."""

    def run(self) -> list[Any]:
        """Carried values at the end, and the arrays of rows that are made."""
        parts, scan, known = self.parts, self.scan, self.parts.known
        self._once()
        for place, step in known.steps.items():
            self.rows[scan.carry_vars[place]] = self._counted(place, step)
        self._together(parts.ahead, [scan.carry_outs[p] for p in known.delayed])
        for place in known.delayed:
            self.rows[scan.carry_vars[place]] = self._delayed(place)
        self._together(parts.ahead, [*parts.rows, *read_by(parts.behind), *parts.wanted])
        ended = self._loop()
        self._together(parts.behind, parts.wanted)
        totals = Totals(parts.terms, self._value, self._array, scan.trips)
        carried = [self._carried(place, ended, totals) for place in range(scan.carry)]
        return [*carried, *map(self._array, scan.row_outs)]

    def _once(self) -> None:
        """Computes what is the same in all iterations."""
        once = self.parts.known.once
        outs = [v for e in once for v in e.outvars]
        inputs = read_by(once)
        found = self.scan.body.computing(once, inputs, outs)(*(self.fixed[v] for v in inputs))
        self.fixed |= zip(outs, found, strict=True)

    def _counted(self, place: int, step: int) -> Any:
        """A counter in all iterations."""
        start = self.start[place]
        numbers = lax.iota(start.dtype, self.scan.trips)
        counted = start + numbers * np.asarray(step).astype(start.dtype)
        return lax.rev(counted, (0,)) if self.scan.reverse else counted

    def _delayed(self, place: int) -> Any:
        """A known value, of the iteration before."""
        rows, start = self.rows[self.scan.carry_outs[place]], self.start[place][None]
        parts = [rows[1:], start] if self.scan.reverse else [start, rows[:-1]]
        return lax.concatenate(parts, 0)

    def _together(self, equations: Sequence[Any], wanted: Sequence[Any]) -> None:
        """Computes those of some variables that equations make, for all iterations at once."""
        equations = [e for e in equations if self.rows.keys().isdisjoint(e.outvars)]
        made = {out for e in equations for out in e.outvars}
        outs = [v for v in dict.fromkeys(wanted) if v in made]
        if not outs:
            return
        equations = leading_to(equations, outs)
        inputs = read_by(equations)
        axes = [0 if v in self.rows else None for v in inputs]
        values = [self.rows[v] if v in self.rows else self.fixed[v] for v in inputs]
        function = self.scan.body.computing(equations, inputs, outs)
        found = jax.vmap(function, in_axes=axes, axis_size=self.scan.trips)(*values)
        self.rows |= zip(outs, found, strict=True)

    def _loop(self) -> dict[int, Any]:
        """Runs the recurrence; the values at its end, by place."""
        parts, scan = self.parts, self.scan
        states = [scan.carry_vars[p] for p in parts.states]
        outs = [scan.carry_outs[p] for p in parts.states]
        if not parts.core and not states:
            return {}
        inputs = [*states, *parts.rows]
        shared = [v for v in variables([*read_by(parts.core), *outs]) if v in self.fixed]
        core = self.scan.body.computing(parts.core, [*inputs, *shared], [*outs, *parts.kept])
        fixed = [self.fixed[v] for v in shared]

        def step(carry: Any, rows: Any) -> Any:
            found = core(*carry, *rows, *fixed)
            return found[: len(outs)], found[len(outs) :]

        ended, arrays = lax.scan(
            step, [self.start[p] for p in parts.states], [self.rows[v] for v in parts.rows],
            scan.trips, scan.reverse, scan.unroll,
        )  # fmt: skip
        self.rows |= zip(parts.kept, arrays, strict=True)
        return dict(zip(parts.states, ended, strict=True))

    def _carried(self, place: int, ended: dict[int, Any], totals: Totals) -> Any:
        """A carried value behind the last iteration."""
        parts, known, start = self.parts, self.parts.known, self.start[place]
        if place in known.same:
            return start
        if place in known.steps:
            return start + np.asarray(known.steps[place] * self.scan.trips).astype(start.dtype)
        if place in known.delayed:
            return self.rows[self.scan.carry_outs[place]][0 if self.scan.reverse else -1]
        if place in parts.sums:
            for subtracted, term in parts.sums[place].terms:
                total = totals.of(term)
                start = start - total if subtracted else start + total
            return start
        return ended[place]

    def _value(self, atom: Any) -> Any:
        """A literal or a fixed variable."""
        if isinstance(atom, jex.Literal):
            literal: Any = atom
            return jnp.asarray(literal.val, literal.aval.dtype)
        return self.fixed[atom]

    def _array(self, atom: Any) -> Any:
        """A variable or literal in all iterations."""
        if isinstance(atom, jex.Literal) or atom in self.fixed:
            return lax.broadcast(self._value(atom), (self.scan.trips,))
        return self.rows[atom]
