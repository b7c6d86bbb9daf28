"""Facts of a graph that features are made of, computed once each."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.machine import Machine, UnitKind
from graphopt.policy.network.decision_space import ALL_ROWS, KnownRows, field_inputs
from graphopt.policy.network.estimates import Estimates, estimate, largest_operand

Column = NDArray[Any]


class Facts:
    """Values that several columns share."""

    def __init__(
        self, graph: Graph, machine: Machine, start: Decisions, rows: KnownRows = ALL_ROWS
    ) -> None:
        self.graph = graph
        self.machine = machine
        self.start = start
        self.fields = field_inputs(graph, start, rows)

    @cached_property
    def estimates(self) -> Estimates:
        """Rough times of every node."""
        return estimate(self.graph)

    @cached_property
    def share(self) -> NDArray[np.float64]:
        """float64 [N]; part of the program's time, loops' own overhead only."""
        total = self.estimates.total
        return total / max(float(total.sum()), 1e-9)

    @cached_property
    def operand_elements(self) -> NDArray[np.int64]:
        """int64 [N]; elements of the largest operand."""
        return largest_operand(self.graph)

    @cached_property
    def receivers(self) -> NDArray[np.int32]:
        """int32 [E]; user of each operand edge, ascending."""
        counts = np.diff(self.graph.operand_start)
        return np.repeat(np.arange(len(self.graph), dtype=np.int32), counts)

    @cached_property
    def users(self) -> NDArray[np.int64]:
        """int64 [N]; uses as an operand."""
        return np.bincount(self.graph.operands, minlength=len(self.graph))

    @cached_property
    def fused_users(self) -> NDArray[np.float64]:
        """float64 [N]; uses by fused nodes."""
        weight = self.graph.default.fuse[self.receivers].astype(np.float64)
        return weighted_count(self.graph.operands, weight, len(self.graph))

    @cached_property
    def fused_operands(self) -> NDArray[np.float64]:
        """float64 [N]; operands that are fused."""
        weight = self.graph.default.fuse[self.graph.operands].astype(np.float64)
        return weighted_count(self.receivers, weight, len(self.graph))

    @cached_property
    def largest_user(self) -> NDArray[np.int64]:
        """int64 [N]; elements of the largest user."""
        out = np.zeros(len(self.graph), np.int64)
        np.maximum.at(out, self.graph.operands, self.graph.elements[self.receivers])
        return out

    @cached_property
    def copies(self) -> NDArray[np.float64]:
        """float64 [N]; clusters that compute the node under XLA's decisions, paths counted apart."""
        fused = self.graph.default.fuse.tolist()
        copies = [0.0 if f else 1.0 for f in fused]
        operand_lists = self.graph.operand_lists
        for node in range(len(fused) - 1, -1, -1):
            times = min(copies[node], 1e12)
            for operand in operand_lists[node]:
                if fused[operand]:
                    copies[operand] += times
        return np.asarray(copies)

    @cached_property
    def cluster_work(self) -> NDArray[np.float64]:
        """float64 [N]; work of the node and of all that is fused into it, paths counted apart."""
        fused = self.graph.default.fuse.tolist()
        work = self.estimates.work.tolist()
        for node, operands in enumerate(self.graph.operand_lists):
            work[node] = min(work[node] + sum(work[o] for o in operands if fused[o]), 1e18)
        return np.asarray(work)

    @cached_property
    def unit_kinds(self) -> NDArray[np.bool_]:
        """bool [U, kinds]; what kind each unit is."""
        return np.array([[u.kind is kind for kind in UnitKind] for u in self.graph.units])

    def may_run(self, kind: UnitKind, threads: int = 1) -> Column:
        """bool [N]; some unit of the kind with at least so many threads is allowed."""
        wanted = [u.kind is kind and u.threads >= threads for u in self.graph.units]
        mask = next(f.mask for f in self.fields if f.name == "unit")
        return np.asarray(mask[:, wanted].any(axis=1))

    def per_computation(self, values: list[float]) -> Column:
        """float64 [N]; one value per computation, given to its nodes."""
        return np.asarray(values, np.float64)[self.graph.computation]

    @cached_property
    def depths(self) -> list[float]:
        """Loops and branches around each computation, one per computation."""
        computations = self.graph.computations
        out = [0.0] * len(computations)
        for index in range(len(computations) - 1, -1, -1):
            parent = computations[index].parent
            if parent is not None:
                out[index] = out[parent] + 1.0
        return out

    def dimension(self, last: bool) -> Column:
        """int64 [N]; the minor-most or major-most dimension, 1 for scalars and tuples."""
        start = self.graph.dim_start
        out = np.ones(len(self.graph), np.int64)
        has = np.flatnonzero(np.diff(start))
        out[has] = self.graph.dims[start[1:][has] - 1 if last else start[:-1][has]]
        return out


def weighted_count(
    ids: NDArray[np.int32], weight: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """float64 [count]; sum of the weights of each id."""
    return np.bincount(ids, weight, minlength=count).astype(np.float64)
