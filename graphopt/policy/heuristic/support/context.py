"""What a step of the heuristic sees: a graph, its costs, and the decisions so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph, Masks
from graphopt.machine import CpuCosts, UnitKind, unit_index
from graphopt.policy.heuristic.support.edit import Edit, difference


@dataclass(frozen=True)
class Context:
    """One graph under the decisions of the steps before.

    Attributes:
        graph: of the program.
        model: its costs.
        decisions: so far; never changed in place.
    """

    graph: Graph
    model: CostModel
    decisions: Decisions

    @property
    def masks(self) -> Masks:
        """Legal values of every decision."""
        return self.graph.masks

    @property
    def costs(self) -> CpuCosts:
        """Facts of the machine that the graph is decided for."""
        return self.model.costs

    @cached_property
    def program_ns(self) -> float:
        """Nanoseconds of one run by XLA's default."""
        return self.model.computations[-1].default_ns(self.model.cores)

    @cached_property
    def native(self) -> int:
        """The execution unit of native code."""
        return unit_index(self.graph.units, UnitKind.NATIVE)

    @cached_property
    def inside_native(self) -> frozenset[int]:
        """Computations inside native loops: their kernels run as part of one function."""
        callees = self.model.callees
        return self.inside(node for node in callees if self.decisions.unit[node] == self.native)

    def inside(self, callers: Iterable[int]) -> frozenset[int]:
        """Computations that some nodes call, at any depth."""
        inside, given, callees = set[int](), set(callers), self.model.callees
        for node in sorted(callees, reverse=True):  # callers before callees
            if node in given or int(self.graph.computation[node]) in inside:
                inside.update(callees[node])
        return frozenset(inside)

    def is_inside_native(self, node: int) -> bool:
        """True for nodes of native loops, at any depth."""
        return int(self.graph.computation[node]) in self.inside_native

    @cached_property
    def in_native(self) -> NDArray[np.bool_]:
        """bool [N]; `is_inside_native` of every node."""
        return np.isin(self.graph.computation, list(self.inside_native))

    def executions(self, node: int) -> float:
        """Times that a node runs per run of the program."""
        return float(self.graph.executions[node])

    def after(self, decisions: Decisions) -> Context:
        """The same graph under other decisions."""
        return Context(self.graph, self.model, decisions)

    def edit(self, wanted: Decisions, saved_ns: float, reason: str) -> Edit | None:
        """The edit that leads from the decisions so far to others; None if they are the same."""
        changes = difference(self.decisions, wanted)
        return Edit(changes, saved_ns, reason) if changes else None
