"""The cost model of any decision vector: no compile, no measurement, the same on every machine.

`graphopt.costs.model` prices a program under XLA's own decisions; this adds up the same figures over the
clusters and plain instructions that other decisions come to: work, memory traffic and dispatch, times how
often each runs. It orders obvious choices rightly (dispatch in hot loops, recomputed producers, passes over
large arrays) and knows nothing of caches or code quality: for continuous integration and first experiments,
not for claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Final

from graphopt.costs.evaluations import shares
from graphopt.costs.model import CostModel, trips
from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.costs.work import compute_ns
from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.plan.clusters import Cluster, Clustering
from graphopt.hlo.plan.regions import Plan, Region
from graphopt.machine import CpuCosts, UnitKind
from graphopt.measure.plans import Outcome, planned
from graphopt.measure.scoring import Scores, VectorMemory

COSTS: Final = CpuCosts()
"""Facts of no machine in particular: scores are the same everywhere."""


class AnalyticModel:
    """Costs of the parts of one graph's modules."""

    def __init__(self, graph: Graph, costs: CpuCosts = COSTS) -> None:
        """Computes what does not depend on decisions.

        Args:
            graph: of the program.
            costs: of the machine.
        """
        self.graph = graph
        self.costs = costs
        self.model = CostModel(graph, costs)
        self.elements: list[int] = graph.elements.tolist()
        self.nbytes: list[int] = graph.nbytes.tolist()
        self.executions: list[float] = graph.executions.tolist()
        self.per_element = [self._element_ns(node, library=False) for node in range(len(graph))]
        self.in_library = {
            node: self._element_ns(node, library=True)
            for node, op in enumerate(graph.ops)
            if op.kind is OpKind.REDUCING
        }
        self.shares = [
            tuple(self.elements[o] / max(1, self.elements[node]) for o in graph.operand_lists[node])
            if graph.ops[node].name == "dot"
            else share
            for node, share in enumerate(shares(graph))
        ]

    def _element_ns(self, node: int, library: bool) -> float:
        """Nanoseconds of one element of a node's result, what it reads not counted."""
        op, count = self.graph.ops[node], max(1, self.elements[node])
        if op.kind is OpKind.STRUCTURE or op.kind is OpKind.CONTROL or op.name == "dot":
            return 0.0
        if node in self.model.windows:
            return self.model.windows[node].loop_ns / count
        return compute_ns(self.graph, node, self.costs, count, library) / count

    def item_seconds(self, outcome: Outcome) -> dict[int, float]:
        """Seconds per run of the module of every item, by item.

        An item is named by the first output of its cluster or by its node (see
        `graphopt.hlo.plan.items`). The dispatch of a native region is charged to its first item.
        """
        seconds: dict[int, float] = {}
        native = self._native_computations(outcome.clustering)
        for index, plan in enumerate(outcome.plans):
            self._add_computation(plan, outcome.clustering, native[index], seconds)
        return seconds

    def total_seconds(self, outcome: Outcome) -> float:
        """Seconds per run of the module."""
        return sum(self.item_seconds(outcome).values())

    def _native_computations(self, clustering: Clustering) -> list[bool]:
        """Per computation: it is part of a native function as a whole."""
        units, graph = clustering.unit, self.graph
        return [
            c.caller is not None and graph.units[units[c.caller]].kind is UnitKind.NATIVE
            for c in graph.computations
        ]

    def _add_computation(
        self, plan: Plan, clustering: Clustering, native: bool, seconds: dict[int, float]
    ) -> None:
        for entry in plan.entries:
            region = isinstance(entry, Region)
            members: Iterable[int] = entry.items if isinstance(entry, Region) else (entry,)
            dispatch = 0.0 if native else self.costs.thunk_ns
            for item in members:
                times = self.executions[item]
                ns = self._item_ns(item, clustering, native or region)
                if ns is None:
                    seconds[item] = 0.0
                    continue
                seconds[item] = (ns + dispatch) * times * 1e-9
                if region:
                    dispatch = 0.0

    def _item_ns(self, item: int, clustering: Clustering, native: bool) -> float | None:
        """Nanoseconds of one execution without dispatch; None where nothing is executed."""
        cluster = clustering.clusters.get(item)
        if cluster is not None:
            return self._cluster_ns(cluster, native)
        graph, costs = self.graph, self.costs
        op = graph.ops[item]
        if op.kind is OpKind.STRUCTURE or op.name == "bitcast":
            return None
        if op.kind is OpKind.CONTROL:
            loop = op.name == "while" and not native
            inside = self.model.callees[item]
            return self.model.iteration_ns(item) * trips(graph, inside[0]) if loop else 0.0
        if is_wall(graph, item):
            call, replacement = wall_costs(graph, item, costs)
            return replacement if native else call
        if op.name == "dot":
            product = self.model.product(item)
            return product.plain_ns if native else product.library_ns
        moved = self._move_ns(self.nbytes[item]) + sum(
            self._move_ns(self.nbytes[operand]) for operand in graph.operand_lists[item]
        )
        call = costs.runtime_call_ns if op.kind is OpKind.RUNTIME and not native else 0.0
        return call + self.elements[item] * self.per_element[item] + moved

    def _cluster_ns(self, cluster: Cluster, native: bool) -> float:
        unit = self.graph.units[cluster.unit]
        library = unit.kind is UnitKind.LIBRARY
        count, reads = self._evaluations(cluster, library)
        ns = sum(self._compute_ns(node, times, library) for node, times in count.items())
        for output in cluster.outputs:
            ns += self._move_ns(self._bytes_of(output, self._written_elements(output)))
        for operand, times in reads.items():
            ns += self._move_ns(self._bytes_of(operand, min(times, self.elements[operand])))
        if native:
            return ns
        if library:
            return self.costs.library_call_ns + ns / self.model.cores
        return ns if unit.threads == 1 else self.costs.handover_ns + ns / unit.threads

    def _compute_ns(self, node: int, times: float, library: bool) -> float:
        """Nanoseconds of so many evaluations of a node; a product is computed as a whole."""
        if self.graph.ops[node].name == "dot":
            product = self.model.product(node)
            return product.library_ns if library else product.plain_ns
        rates = self.in_library if library and node in self.in_library else self.per_element
        return times * rates[node]

    def _evaluations(
        self, cluster: Cluster, library: bool
    ) -> tuple[dict[int, float], dict[int, float]]:
        """Evaluations of what is inside a cluster, and of what it reads; the library computes nodes once.

        Users that read a node at their own index share one evaluation of it; every other use adds its own.
        """
        inside = set(cluster.nodes)
        count = {output: float(self._written_elements(output)) for output in cluster.outputs}
        reads: dict[int, float] = {}
        for node in reversed(cluster.nodes):
            here = float(self.elements[node]) if library else count.get(node, 0.0)
            count[node] = here
            elementwise = self.graph.ops[node].kind is OpKind.ELEMENTWISE
            operands = self.graph.operand_lists[node]
            for operand, share in zip(operands, self.shares[node], strict=True):
                target = count if operand in inside else reads
                known, each = target.get(operand, 0.0), here * share
                target[operand] = max(known, each) if elementwise else known + each
        return count, reads

    def _written_elements(self, node: int) -> int:
        """Elements that a root writes; an update in place writes only the update."""
        operands = self.graph.operand_lists[node]
        if self.graph.ops[node].name == "dynamic-update-slice" and len(operands) > 1:
            return self.elements[operands[1]]
        return self.elements[node]

    def _bytes_of(self, node: int, elements: float) -> float:
        return self.nbytes[node] * elements / max(1, self.elements[node])

    def _move_ns(self, nbytes: float) -> float:
        costs = self.costs
        cached = nbytes <= costs.cached_bytes
        return nbytes / (costs.cached_bytes_per_ns if cached else costs.bytes_per_ns)


class AnalyticScorer:
    """The analytic cost as a `Scorer`: deterministic, measures nothing, knows every vector.

    Attributes:
        name: ``analytic``.
        graph: the graph whose vectors it scores.
        deterministic: True.
    """

    name = "analytic"
    deterministic = True

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.model = AnalyticModel(graph)
        self.memory = VectorMemory()

    @cached_property
    def default_s(self) -> float:
        """Seconds of XLA's own decisions by this model."""
        return self._seconds(self.graph.default)[0]

    def score(self, batch: DecisionBatch) -> Scores:
        """Times of B vectors inside the graph's masks; equal vectors are computed once."""
        if len(self.memory.known) >= _KNOWN_VECTORS:
            self.memory.known.clear()
        scores = self.memory.score(batch, self._seconds)
        return replace(scores, measured=0)

    def _seconds(self, decisions: Decisions) -> tuple[float, None]:
        return self.model.total_seconds(planned(self.graph, decisions)), None


_KNOWN_VECTORS: Final = 4096
"""Vectors remembered; the memory is emptied when it is full."""
