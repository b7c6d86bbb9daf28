"""From decisions of tasks to a program's, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.alternatives.alternative import difference
from graphopt.policy.alternatives.sites import PROGRAM_ROWS
from graphopt.tasks.cutting import Task


@dataclass(frozen=True)
class Composed:
    """A program's decisions, put together.

    Attributes:
        decisions: inside the masks.
        made: edits that were carried over.
        left: edits that the program's masks forbid, or that only the task has a node for.
    """

    decisions: Decisions
    made: int
    left: int


def compose(
    graph: Graph, base: Decisions, chosen: Iterable[tuple[Task, Decisions, Decisions]]
) -> Composed:
    """Carries what was changed in tasks over to their program.

    Args:
        graph: of the program.
        base: its decisions so far, inside the masks; never changed in place.
        chosen: (task, its decisions before, its decisions after); of two tasks that change one decision
            the later one holds.
    """
    out = base.copy()
    made = left = 0
    for task, before, after in chosen:
        for field, node, value in difference(before, after):
            target = int(task.nodes[node])
            if target < 0 or not getattr(graph.masks, field)[target, value]:
                left += 1
                continue
            getattr(out, field)[target] = value
            made += 1
    return Composed(out, made, left)


def restrict(task: Task, decisions: Decisions, *, native: bool = False) -> Decisions:
    """What a program's decisions are for one of its tasks; XLA's own where they are not legal there.

    Args:
        task: of the program.
        decisions: of the program.
        native: the task is part of a native loop there, so that it is native code here.
    """
    known = np.flatnonzero(task.nodes >= 0)
    targets = task.nodes[known]
    out = task.graph.default.copy()
    for field in FIELDS:
        wanted = getattr(decisions, field)[targets]
        legal = getattr(task.graph.masks, field)[known, wanted.astype(np.intp)]
        if field == "restructure":
            legal &= ~np.isin(wanted, [CODE[row] for row in PROGRAM_ROWS])
        getattr(out, field)[known[legal]] = wanted[legal]
    if native:
        unit = unit_index(task.graph.units, UnitKind.NATIVE)
        entry = task.graph.computations[-1]
        nodes = np.arange(entry.first, entry.end)
        inside = task.graph.masks.unit[nodes, unit] & ~out.fuse[nodes]
        out.unit[nodes[inside]] = unit
    return out
