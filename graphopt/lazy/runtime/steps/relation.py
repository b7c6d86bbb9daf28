"""Steps that were recorded and not run yet, and how each follows from the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from graphopt.lazy.core.node import Node
from graphopt.lazy.record.held import held_elsewhere
from graphopt.lazy.record.traces import Recording
from graphopt.lazy.runtime.cache import Entry
from graphopt.lazy.runtime.index_checks import Dependency

SAME: Final = -1
"""A buffer of a step is that of the step before."""

OWN: Final = -2
"""A buffer of a step is an array of the host that this step alone uses."""


Relation = tuple[int, ...]
"""Per buffer of a step: the root of the step before that it is, `SAME` or `OWN`."""


@dataclass(slots=True, eq=False)
class Step:
    """A step that was recorded and is not run yet.

    Attributes:
        entry: its graph.
        leaves: nodes of its buffers, in the graph's order; some are roots of the step before.
        scalars: its scalar parameters.
        roots: nodes of its results.
        recording: what was recorded; it computes the roots, whatever becomes of the step.
        relation: how it follows from the step before; None for the first.
    """

    entry: Entry
    leaves: list[Node]
    scalars: list[Any]
    roots: list[Node]
    recording: Recording
    relation: Relation | None = None

    def alive(self) -> set[Node]:
        """Roots that somebody holds a tensor of."""
        return {tensor._node for tensor in held_elsewhere(self.recording.handles)}


def relation_of(before: Step, step: Step) -> Relation | None:
    """How a step follows from the one before; None if it has buffers that neither knows."""
    places = {node: k for k, node in enumerate(before.roots)}
    found = []
    for old, new in zip(before.leaves, step.leaves, strict=True):
        if new is old:
            found.append(SAME)
            continue
        place = places.get(new)
        if place is None:
            if type(new.data) is not np.ndarray:
                return None
            place = OWN
        found.append(place)
    return tuple(found)


def closure(roots: Sequence[Dependency], relation: Relation) -> list[Dependency]:
    """What the roots of a step depend on that comes after others.

    Args:
        roots: per root, numbers of the checked operations and of the buffers of its own step that it
            depends on; see `index_checks.dependencies`.
        relation: how the steps follow from each other.

    Returns:
        The same with those of earlier steps, down to the buffers of the first one.
    """
    found = [(set(checks), set(leaves)) for checks, leaves in roots]
    grown = True
    while grown:
        grown = False
        for checks, leaves in found:
            before = len(checks) + len(leaves)
            for source in [relation[k] for k in leaves if relation[k] >= 0]:
                checks |= found[source][0]
                leaves |= found[source][1]
            grown = grown or len(checks) + len(leaves) > before
    return [(tuple(sorted(checks)), frozenset(leaves)) for checks, leaves in found]
