"""Single changes of decisions where a program spends its time: what a policy tries on the heuristic's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.hlo.graph.decisions import FIELDS
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure import REPLACES, replacing
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.loops.native_loops import MAX_NATIVE_CODE
from graphopt.policy.heuristic.memory.keep_in_memory import NEVER_WRITTEN
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.native_code import make_native

MAX_CHANGES: Final = 16
MAX_PER_KIND: Final = 5
"""Most changes in all, and of loops, kernels, values and replacements each: every one is judged, and measured
when the store is filled.
"""

MIN_SHARE: Final = 0.02
"""Part of the program's estimated time that a change must be about."""


@dataclass(frozen=True)
class Change:
    """Other values for a few decisions.

    Attributes:
        kind: what it does, one of a few phrases.
        node: the node that it is about.
        weight: estimated nanoseconds of the program that it is about.
        edits: (field, node, value), all inside the masks.
    """

    kind: str
    node: int
    weight: float
    edits: tuple[tuple[str, int, int], ...]

    @property
    def name(self) -> str:
        """For reports."""
        return f"{self.kind}, node {self.node}"


def changed(decisions: Decisions, changes: Iterable[Change]) -> Decisions:
    """A copy with some changes made, later ones last."""
    out = decisions.copy()
    for change in changes:
        for field, node, value in change.edits:
            getattr(out, field)[node] = value
    return out


def single_changes(graph: Graph, start: Decisions, model: CostModel) -> list[Change]:
    """Changes of `start` by weight, heaviest first.

    Args:
        graph: of the program.
        start: the decisions that are changed; inside the masks.
        model: the graph's costs.
    """
    context = Context(graph, model, start)
    least = MIN_SHARE * model.computations[-1].default_ns(model.cores)
    kept: list[Change] = []
    for kind in (_loops, _kernels, _values, _replacements):
        found = [c for c in kind(context) if c.edits and c.weight >= least]
        kept += sorted(found, key=lambda change: -change.weight)[:MAX_PER_KIND]
    return sorted(kept, key=lambda change: -change.weight)[:MAX_CHANGES]


def _loops(context: Context) -> Iterator[Change]:
    """Loops into one native function, or out of it."""
    graph, start, model = context.graph, context.decisions, context.model
    native, runtime = (unit_index(graph.units, k) for k in (UnitKind.NATIVE, UnitKind.RUNTIME))
    for node in model.callees:
        if graph.ops[node].name != "while" or context.is_inside_native(node):
            continue
        weight = model.control(node).default_ns(model.cores) * float(graph.executions[node])
        if start.unit[node] == native:
            if not graph.masks.unit[node, runtime]:
                continue
            edits = [("unit", node, runtime)]
            edits += [("restructure", n, 0) for n in _replaced_within(graph, model, start, node)]
            yield Change("loop not native", node, weight, tuple(edits))
        elif graph.masks.unit[node, native] and model.control(node).code <= MAX_NATIVE_CODE:
            other = start.copy()
            make_native(context, other, node)
            yield Change("loop native", node, weight, _difference(start, other))


def _kernels(context: Context) -> Iterator[Change]:
    """Kernels outside native loops on other units."""
    graph, start, model = context.graph, context.decisions, context.model
    allowed = graph.masks.unit
    for root in np.flatnonzero(~start.fuse).tolist():
        if graph.ops[root].kind in (OpKind.STRUCTURE, OpKind.CONTROL) or context.is_inside_native(
            root
        ):
            continue
        weight = model.cluster_ns(start.fuse, root) * float(graph.executions[root])
        for index, unit in enumerate(graph.units):
            if (
                index == start.unit[root]
                or not allowed[root, index]
                or unit.kind is UnitKind.RUNTIME
            ):
                continue
            several = unit.kind is UnitKind.LOOP and unit.threads > 1
            kind = f"kernel {unit.kind.value}" + (", split" if several else "")
            yield Change(kind, root, weight, (("unit", root, index),))


def _values(context: Context) -> Iterator[Change]:
    """Values with several users written to memory, and written ones computed inside their users."""
    graph, start, model = context.graph, context.decisions, context.model
    allowed = graph.masks.fuse
    for node, users in enumerate(graph.user_lists):
        if graph.ops[node].name in NEVER_WRITTEN or not users:
            continue
        times = float(graph.executions[node])
        if start.fuse[node]:
            if len(users) > 1 and allowed[node, 0]:
                weight = model.evaluated_ns(node) * times
                yield Change("value in memory", node, weight, (("fuse", node, 0),))
        elif allowed[node, 1]:
            costs = model.costs
            moved = (
                costs.thunk_ns + float(graph.nbytes[node]) * (1 + len(users)) / costs.bytes_per_ns
            )
            yield Change("value fused", node, moved * times, (("fuse", node, 1),))


def _replacements(context: Context) -> Iterator[Change]:
    """Operations as they are, and replaced by what no native region needs."""
    graph, start, model = context.graph, context.decisions, context.model
    legal = graph.masks.restructure & REPLACES
    codes = replacing(start.restructure)
    for node in np.flatnonzero(legal[:, 1:].any(axis=1)).tolist():
        weight = model.evaluated_ns(node) * float(graph.executions[node])
        wall = not graph.regional[node]
        if codes[node] and not wall:
            yield Change("not replaced", node, weight, (("restructure", node, 0),))
        for code in np.flatnonzero(legal[node]).tolist():
            row = RESTRUCTURES[code]
            if code and code != start.restructure[node] and not (row.opens and wall):
                yield Change(row.name, node, weight, (("restructure", node, code),))


def _replaced_within(graph: Graph, model: CostModel, start: Decisions, loop: int) -> list[int]:
    """Nodes in a loop, and in the loops inside it, that are replaced."""
    found = []
    for index in model.callees[loop]:
        computation = graph.computations[index]
        for node in range(computation.first, computation.end):
            if start.restructure[node]:
                found.append(node)
            if node in model.callees:
                found += _replaced_within(graph, model, start, node)
    return found


def _difference(before: Decisions, after: Decisions) -> tuple[tuple[str, int, int], ...]:
    edits = []
    for field in FIELDS:
        old, new = getattr(before, field), getattr(after, field)
        edits += [(field, node, int(new[node])) for node in np.flatnonzero(old != new).tolist()]
    return tuple(edits)
