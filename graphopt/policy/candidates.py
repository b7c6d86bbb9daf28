"""Whole decision vectors that a policy without search can choose between: few, and cheap to make."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.ops import OpKind
from graphopt.machine import UnitKind
from graphopt.policy.heuristic import STEPS, heuristic, heuristic_steps

MAX_NODES: Final = 4000
"""Larger graphs get the heuristic only: each further candidate costs time inside the user's compile."""

MAX_NATIVE_NODES: Final = 600
"""Largest graph that is offered as native code altogether: compile time grows faster than size."""

_CHECKED_STEPS: Final = ("small runs", "native loops")
"""Steps of the heuristic that are offered apart: the ones with the largest gains and losses."""

_VIEWS: Final = frozenset({"bitcast", "broadcast", "reshape", "iota", "get-tuple-element", "tuple"})


def candidates(graph: Graph) -> list[tuple[str, Decisions]]:
    """Distinct vectors other than XLA's own, the heuristic's first where it changes anything."""
    made: list[tuple[str, Decisions]] = []

    def add(name: str, decisions: Decisions) -> None:
        known = [graph.default, *(other for _, other in made)]
        if not any(decisions.same_as(other) for other in known):
            made.append((name, decisions))

    whole = heuristic(graph)
    if whole is not None:
        add("heuristic", whole)
    if len(graph) > MAX_NODES:
        return made
    if whole is not None:
        for step in _CHECKED_STEPS:
            add(f"heuristic {step}", heuristic_steps(graph, [step]))
            rest = [s for s in STEPS if s != step]
            add(f"heuristic without {step}", heuristic_steps(graph, rest))
    if len(graph) <= MAX_NATIVE_NODES:
        add("native everywhere", _native(graph, loops_only=False))
        add("native loops all", _native(graph, loops_only=True))
    add("keep shared values", _keep_shared(graph))
    return made


def _native(graph: Graph, loops_only: bool) -> Decisions:
    """All that may be native, or the loops that may."""
    unit = next((i for i, u in enumerate(graph.units) if u.kind is UnitKind.NATIVE), None)
    out = graph.default.copy()
    if unit is not None:
        where = graph.masks.unit[:, unit].copy()
        if loops_only:
            where &= np.array([op.kind is OpKind.CONTROL for op in graph.ops], np.bool_)
        out.unit[where] = unit
    return out


def _keep_shared(graph: Graph) -> Decisions:
    """Every value with several users that are no mere views is written to memory."""
    view = np.array([op.name in _VIEWS for op in graph.ops], np.bool_)
    shared = np.array(
        [sum(not view[user] for user in users) > 1 for users in graph.user_lists], np.bool_
    )
    out = graph.default.copy()
    out.fuse[shared & ~view & graph.masks.fuse[:, 0]] = False
    return out
