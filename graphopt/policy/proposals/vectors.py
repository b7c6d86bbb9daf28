"""Whole decision vectors that a policy without search can choose between: few, and cheap to make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.steps import STEPS, heuristic_steps
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import native_below
from graphopt.policy.proposals.single_changes import changed, single_changes

MAX_NODES: Final = 4000
"""Larger graphs get the heuristic only: each further candidate costs time inside the user's compile."""

MAX_NATIVE_NODES: Final = 600
"""Largest graph that is offered as native code altogether: compile time grows faster than size."""

NATIVE_BELOW_NS: Final = (20_000.0, 100_000.0)
"""Kernels up to so much estimated work are offered as native code, beyond those of the heuristic."""

_VIEWS: Final = frozenset({"bitcast", "broadcast", "reshape", "iota", "get-tuple-element", "tuple"})


def candidates(
    graph: Graph, whole: Decisions | None = None, model: CostModel | None = None
) -> list[tuple[str, Decisions]]:
    """Distinct vectors other than XLA's own, the heuristic's first where it changes anything.

    Args:
        graph: of the program.
        whole: the heuristic's decisions, if they are known already.
        model: the graph's costs, likewise.
    """
    made: list[tuple[str, Decisions]] = []
    model = CostModel(graph) if model is None else model
    for name, decisions in _make(graph, model, whole):
        known = [graph.default, *(other for _, other in made)]
        if not any(decisions.same_as(other) for other in known):
            made.append((name, decisions))
    return made


def _make(
    graph: Graph, model: CostModel, whole: Decisions | None
) -> Iterator[tuple[str, Decisions]]:
    whole = heuristic_steps(graph, STEPS, model) if whole is None else whole
    yield "heuristic", whole
    if len(graph) > MAX_NODES:
        return
    for limit in NATIVE_BELOW_NS:
        more = native_below(Context(graph, model, whole), limit)
        yield f"heuristic, native below {limit / 1000:.0f} us", more
    for step in _doubtful(graph, whole):
        rest = [other for other in STEPS if other != step]
        yield f"heuristic without {step}", heuristic_steps(graph, rest, model)
    yield (
        "native loops and reductions",
        heuristic_steps(graph, ["native loops", "reductions"], model),
    )
    yield "one core", heuristic_steps(graph, ["one core"], model)
    if len(graph) <= MAX_NATIVE_NODES:
        yield "native everywhere", _native(graph, loops_only=False)
        yield "native loops all", _native(graph, loops_only=True)
    yield "keep shared values", keep_shared(graph)
    for change in single_changes(graph, whole, model):
        yield change.name, changed(whole, [change])


def _doubtful(graph: Graph, whole: Decisions) -> Iterator[str]:
    """Steps of the heuristic that have done something and sometimes lose."""
    units = graph.units
    if (graph.default.fuse & ~whole.fuse).any():
        yield "keep in memory"
    changed = np.unique(whole.unit[whole.unit != graph.default.unit]).tolist()
    if any(units[unit].kind is UnitKind.NATIVE for unit in changed):
        yield "small runs"
    if any(units[unit].kind is UnitKind.LOOP for unit in changed):
        yield "one core"


def _native(graph: Graph, loops_only: bool) -> Decisions:
    """All that may be native, or the loops that may."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    where = graph.masks.unit[:, unit].copy()
    if loops_only:
        where &= np.array([op.kind is OpKind.CONTROL for op in graph.ops], np.bool_)
    out = graph.default.copy()
    out.unit[where] = unit
    return out


def keep_shared(graph: Graph) -> Decisions:
    """Every value with several users that are no mere views is written to memory."""
    view = np.array([op.name in _VIEWS for op in graph.ops], np.bool_)
    shared = np.array(
        [sum(not view[user] for user in users) > 1 for users in graph.user_lists], np.bool_
    )
    out = graph.default.copy()
    out.fuse[shared & ~view & graph.masks.fuse[:, 0]] = False
    return out
