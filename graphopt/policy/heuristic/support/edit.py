"""What a step of the heuristic returns: the changes it wants, and what it expects of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions
from graphopt.hlo.graph.decisions import FIELDS


@dataclass(frozen=True)
class NewValues:
    """New values of one field of `Decisions`.

    Attributes:
        field: name of the field.
        nodes: int64 [M]; nodes whose value changes, ascending.
        values: [M], of the field's dtype; the new value of each.
    """

    field: str
    nodes: NDArray[np.int64]
    values: NDArray[Any]


@dataclass(frozen=True)
class Edit:
    """What a step wants to change.

    Attributes:
        changes: at most one per field; none is empty.
        saved_ns: nanoseconds that one run of the program is expected to take less.
        reason: what was found, for reports.
    """

    changes: tuple[NewValues, ...]
    saved_ns: float
    reason: str

    @property
    def nodes(self) -> int:
        """Nodes that change in some field."""
        return len(set().union(*(change.nodes.tolist() for change in self.changes)))

    def makes(self, field: str, value: int, nodes: NDArray[np.intp]) -> bool:
        """Whether it gives one of these nodes this value of a field."""
        for change in self.changes:
            if change.field == field:
                given = change.nodes[change.values == value]
                return bool(np.isin(given, nodes).any())
        return False

    def applied_to(self, decisions: Decisions) -> Decisions:
        """New decisions with the changes made."""
        out = decisions.copy()
        for change in self.changes:
            getattr(out, change.field)[change.nodes] = change.values
        return out


def difference(before: Decisions, after: Decisions) -> tuple[NewValues, ...]:
    """The changes that lead from one decision vector to another."""
    found = []
    for field in FIELDS:
        old, new = getattr(before, field), getattr(after, field)
        nodes = np.flatnonzero(old != new)
        if len(nodes):
            found.append(NewValues(field, nodes, new[nodes]))
    return tuple(found)
