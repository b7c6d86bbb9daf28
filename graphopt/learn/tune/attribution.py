"""Which of a winner's decisions make it faster: each kind of change is taken back, alone, and measured.

Beside each kind stand the steps of the heuristic that make it too; a kind without any is the search's own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.errors import MeasureError
from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.measure.children.runner import Runner
from graphopt.policy.heuristic.steps import decide
from graphopt.policy.heuristic.support.step import Applied

LOOK_S: Final = 0.25
"""Timing of one variant."""

MOST: Final = 8
"""Kinds of change that are looked at, those that touch most nodes first."""


@dataclass(frozen=True)
class Share:
    """What one kind of change is worth beside all the others of the winner.

    Attributes:
        change: ``"unit = native"``.
        nodes: nodes that it touches.
        worth: time without it / time with it: above 1, the change helps; None if the variant without it
            could not be measured.
        low: lower end of the 95 % interval of `worth`.
        high: upper end.
        steps: steps of the heuristic that make the same change at some of these nodes.
    """

    change: str
    nodes: int
    worth: float | None = None
    low: float = 0.0
    high: float = 0.0
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        """For reports: ``2 x unit = native (native-loops): 12.31x (12.10-12.50)``."""
        names = f" ({', '.join(self.steps)})" if self.steps else ""
        what = f"{self.nodes} x {self.change}{names}"
        if self.worth is None:
            return f"{what}: not measured"
        if self.low <= 1.0 <= self.high:
            return f"{what}: no difference"
        return f"{what}: {self.worth:.2f}x ({self.low:.2f}-{self.high:.2f})"


def describe_value(graph: Graph, field: str, value: int) -> str:
    """``unit = native``, ``restructure = tree-reduce``, ``fuse = 0``."""
    if field == "unit":
        return f"unit = {graph.units[value].name}"
    return f"{field} = {RESTRUCTURES[value].name if field == 'restructure' else value}"


def changes_of(graph: Graph, decisions: Decisions) -> dict[str, tuple[str, NDArray[np.intp]]]:
    """Kind of change -> (field, int [K] node numbers); those that touch most nodes first."""
    found: dict[str, tuple[str, NDArray[np.intp]]] = {}
    for field in FIELDS:
        ours, default = getattr(decisions, field), getattr(graph.default, field)
        changed = np.flatnonzero(ours != default)
        for value in np.unique(ours[changed]):
            text = describe_value(graph, field, int(value))
            found[text] = (field, changed[ours[changed] == value])
    return dict(sorted(found.items(), key=lambda item: -len(item[1][1])))


def steps_behind(graph: Graph, decisions: Decisions) -> dict[str, tuple[Applied, ...]]:
    """Kind of change -> the heuristic's steps that make it too, at one node or more; only kinds with any."""
    applied = decide(graph).steps
    found = {}
    for text, (field, nodes) in changes_of(graph, decisions).items():
        value = getattr(decisions, field)[nodes[0]]
        steps = tuple(step for step in applied if step.edit.makes(field, value, nodes))
        if steps:
            found[text] = steps
    return found


def without(graph: Graph, decisions: Decisions, field: str, nodes: NDArray[np.intp]) -> Decisions:
    """The decisions with XLA's default at these nodes of one field."""
    values = getattr(decisions, field).copy()
    values[nodes] = getattr(graph.default, field)[nodes]
    return decisions.with_changes(**{field: values})


def attribute(runner: Runner, winner: Decisions, limit_s: float) -> tuple[Share, ...]:
    """Measures the winner with one kind of change taken back, in turn with the whole winner, for every kind.

    Worths do not multiply to the whole gain: changes that only pay together each show all of it.

    Args:
        runner: of the module.
        winner: decisions that differ from the default.
        limit_s: seconds after which the remaining kinds are left unmeasured.
    """
    end = time.perf_counter() + limit_s
    shares = []
    behind = steps_behind(runner.graph, winner)
    for number, (change, (field, nodes)) in enumerate(changes_of(runner.graph, winner).items()):
        steps = tuple(applied.step for applied in behind.get(change, ()))
        share = Share(change, len(nodes), steps=steps)
        if number < MOST and time.perf_counter() < end:
            share = _measured(runner, winner, share, field, nodes)
        shares.append(share)
    return tuple(shares)


def _measured(
    runner: Runner, winner: Decisions, share: Share, field: str, nodes: NDArray[np.intp]
) -> Share:
    rest = without(runner.graph, winner, field, nodes)
    try:
        found = runner.measure(rest, against=winner, budget_s=LOOK_S, method="attribution")
    except MeasureError:  # the worker cannot be started again; the winner stands without
        return share
    if not found.ok:
        return share
    return replace(share, worth=1 / found.ratio, low=1 / found.high, high=1 / found.low)
