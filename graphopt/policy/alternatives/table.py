"""All alternatives of a graph in one fixed list, and which of them there are under given decisions.

Axis letters: N nodes, F decision fields, A alternatives, E edits of all alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.model import CostModel
from graphopt.errors import ConfigError
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.alternatives.alternative import KIND, KIND_CODE, STOP, Alternative, When
from graphopt.policy.alternatives.sites import PROGRAM_ROWS, SITES, Sites

MIN_SHARE: Final = 0.005
"""Part of the program's estimated time that an alternative must be about."""

Values = NDArray[np.int16]


class AlternativeTable:
    """The alternatives of one graph, STOP first, then by weight, heaviest first.

    Attributes:
        graph: whose alternatives they are.
        rows: A alternatives.
        kind: int16 [A]; code of each one's kind (`KIND_CODE`).
        node: int32 [A]; the site, -1 for the program.
        weight: float64 [A]; estimated nanoseconds that it is about.
        left_out: lighter alternatives of the graph that are not among them.
    """

    def __init__(self, graph: Graph, rows: Sequence[Alternative], left_out: int = 0) -> None:
        """Indexes a list of alternatives.

        Args:
            graph: whose alternatives they are.
            rows: without STOP.
            left_out: see above.

        Raises:
            ConfigError: one is empty.
        """
        self.graph = graph
        self.left_out = left_out
        self.rows = (STOP, *rows)
        if any(not row.edits for row in rows):
            raise ConfigError(
                what="an alternative without edits", where=graph.name, fix="Leave it out."
            )
        self.kind = np.array([KIND_CODE[row.kind] for row in self.rows], np.int16)
        self.node = np.array([row.node for row in self.rows], np.int32)
        self.weight = np.array([row.weight for row in self.rows])
        count = len(graph)
        place = {field: index * count for index, field in enumerate(FIELDS)}
        self._at = np.array([place[f] + n for row in rows for f, n, _ in row.edits], np.int64)
        self._value = np.array([v for row in rows for _, _, v in row.edits], np.int16)
        self._start = np.cumsum([0, *(len(row.edits) for row in rows)])[:-1].astype(np.int64)
        when = np.array([KIND[row.kind].when for row in self.rows], np.int8)
        sites = np.maximum(self.node, 0)
        written = np.isin(when, (When.WRITTEN, When.KERNEL))
        outside = np.isin(when, (When.OUTSIDE, When.KERNEL))
        self._written, self._outside = np.flatnonzero(written), np.flatnonzero(outside)
        self._fuse_at = sites[self._written]
        self._computation = graph.computation[sites[self._outside]]
        self._native = unit_index(graph.units, UnitKind.NATIVE)
        self._unit = place["unit"]
        self._edits: dict[int, tuple[NDArray[np.int64], Values]] = {}

    def __len__(self) -> int:
        """Number of alternatives A, STOP included."""
        return len(self.rows)

    @cached_property
    def _callers(self) -> list[tuple[int, int, int]]:
        """(computation, calling node, computation of that), callers before callees."""
        found = [
            (index, c.caller, c.parent)
            for index, c in enumerate(self.graph.computations)
            if c.caller is not None and c.parent is not None
        ]
        return sorted(found, key=lambda row: -row[1])

    def flat(self, decisions: Decisions) -> Values:
        """int16 [F * N]; decisions field by field: what `available` and `choose` work on."""
        return np.concatenate([getattr(decisions, f).astype(np.int16) for f in FIELDS])

    def decisions(self, flat: Values) -> Decisions:
        """The decisions of such an array, with arrays of their own."""
        default, count = self.graph.default, len(self.graph)
        parts: dict[str, Any] = {
            field: flat[i * count : (i + 1) * count].astype(getattr(default, field).dtype)
            for i, field in enumerate(FIELDS)
        }
        return Decisions(**parts)

    def available(self, flat: Values) -> NDArray[np.bool_]:
        """bool [A]; alternatives that change something under these decisions; STOP always.

        Args:
            flat: int16 [F * N]; see `flat`.
        """
        out = np.ones(len(self.rows), np.bool_)
        if not len(self._at):
            return out
        differs = flat[self._at] != self._value
        out[1:] = np.logical_or.reduceat(differs, self._start)
        out[self._written] &= flat[self._fuse_at] == 0
        inside = self._inside_native(flat)
        if inside is not None:
            out[self._outside] &= ~inside[self._computation]
        return out

    def _inside_native(self, flat: Values) -> NDArray[np.bool_] | None:
        """bool [computations]; part of a native loop; None if none is."""
        inside = None
        for index, caller, parent in self._callers:
            if flat[self._unit + caller] == self._native or (inside is not None and inside[parent]):
                if inside is None:
                    inside = np.zeros(len(self.graph.computations), np.bool_)
                inside[index] = True
        return inside

    def inside_native(self, flat: Values) -> NDArray[np.bool_]:
        """bool [computations]; computations that are part of a native loop under these decisions."""
        inside = self._inside_native(flat)
        return np.zeros(len(self.graph.computations), np.bool_) if inside is None else inside

    def changes(self, flat: Values) -> tuple[NDArray[np.int64], NDArray[np.int64], Values]:
        """All edits that change these decisions, K of them, those of one alternative together.

        Returns:
            The alternative of each, int64 [K], ascending; where it writes into a flat array, int64 [K]; what,
            int16 [K].
        """
        differs = np.flatnonzero(flat[self._at] != self._value)
        return self._owner[differs], self._at[differs], self._value[differs]

    @cached_property
    def _owner(self) -> NDArray[np.int64]:
        """int64 [E]; the alternative of every edit."""
        ends = np.append(self._start[1:], len(self._at))
        return np.repeat(np.arange(1, len(self.rows)), ends - self._start)

    def edits(self, index: int) -> tuple[NDArray[np.int64], Values]:
        """Where an alternative writes into a flat array, int64 [K], and what, int16 [K]; K edits."""
        if index == 0:
            return self._at[:0], self._value[:0]
        start = int(self._start[index - 1])
        end = int(self._start[index]) if index < len(self._start) else len(self._at)
        return self._at[start:end], self._value[start:end]

    def choose(self, flat: Values, index: int) -> None:
        """Writes an alternative into a flat array, in place."""
        at, value = self.edits(index)
        flat[at] = value


def alternatives(
    graph: Graph,
    model: CostModel | None = None,
    *,
    least_share: float = MIN_SHARE,
    limit: int | None = None,
    program: bool = True,
) -> AlternativeTable:
    """Every alternative at every site that is worth a look.

    Args:
        graph: of the program or task.
        model: its costs, if they are known already.
        least_share: part of the program's estimated time that an alternative must be about.
        limit: keep only so many of the heaviest, STOP not counted; None for all.
        program: with alternatives about the whole program, which no part of one has.
    """
    model = CostModel(graph) if model is None else model
    sites = Sites(graph, model)
    least = least_share * sites.context.program_ns
    found: dict[tuple[Any, ...], Alternative] = {}
    for generate in SITES:
        for row in generate(sites):
            if row.weight < least or (not program and row.kind in PROGRAM_ROWS):
                continue
            if row.node < 0 and not program:
                continue
            found.setdefault(tuple(sorted(row.edits)), row)
    rows = sorted(found.values(), key=lambda row: -row.weight)
    kept = rows[:limit]
    return AlternativeTable(graph, kept, len(rows) - len(kept))
