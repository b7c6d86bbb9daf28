"""An analytic cost of decision vectors: no compile, no measurement, the same on every machine.

A module's time is taken as the sum over its clusters and plain instructions of work, memory traffic
and dispatch, times how often each runs. It orders obvious choices rightly (dispatch in hot loops,
recomputed producers, passes over large arrays) and knows nothing of caches or code quality: for
continuous integration and first experiments, not for claims. Constants are orders of magnitude of
jaxlib 0.10.2 on x86.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from graphopt.hlo import DecisionBatch, Graph
from graphopt.hlo.graph.graph import UNKNOWN_TRIPS
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import HloInstructionProto
from graphopt.hlo.plan.clusters import Cluster, Clustering
from graphopt.hlo.plan.regions import Plan, Region
from graphopt.machine import UnitKind
from graphopt.measure.plans import Outcome, planned, vector_key
from graphopt.measure.scoring import Scores

THUNK_NS: Final = 55.0
"""Dispatch of one kernel, plain instruction or native region by the thunk executor."""

LOOP_NS: Final = 150.0
"""One iteration of a while loop that the thunk executor runs, beside what is inside."""

CALL_NS: Final[dict[UnitKind, float]] = {
    UnitKind.LOOP: 0.0,
    UnitKind.LIBRARY: 1500.0,
    UnitKind.RUNTIME: 400.0,
    UnitKind.NATIVE: 0.0,
}
"""What one call of a unit costs beside dispatch."""

PARALLEL_NS: Final = 2000.0
"""Handing the parts of a kernel to other threads and waiting for them."""

OPERATIONS_PER_NS: Final = 24.0
SCALAR_OPERATIONS_PER_NS: Final = 4.0
"""Units of `Op.cost` per nanosecond, vectorised and not."""

DOT_FLOPS_PER_NS: Final = 40.0
NATIVE_DOT_FLOPS_PER_NS: Final = 1.5
"""Matrix products by a library and by plain loops."""

BYTES_PER_NS: Final = 10.0
CACHED_BYTES_PER_NS: Final = 40.0
CACHED_BYTES: Final = 1 << 19
"""Arrays up to this size move at the speed of the second-level cache."""

SHORT: Final = 16
"""Arrays of fewer elements are not vectorised."""

_WHOLE_OPERAND: Final = frozenset({"concatenate", "pad"})
_FREE: Final = frozenset({"bitcast"})


class AnalyticModel:
    """Costs of the parts of one graph's modules."""

    def __init__(self, graph: Graph) -> None:
        """Computes what does not depend on decisions."""
        self.graph = graph
        self.cores = max(unit.threads for unit in graph.units)
        self.elements: list[int] = graph.elements.tolist()
        self.nbytes: list[int] = graph.nbytes.tolist()
        self.executions: list[float] = graph.executions.tolist()
        self.per_element = [
            op.cost / (OPERATIONS_PER_NS if self._vectorises(node) else SCALAR_OPERATIONS_PER_NS)
            for node, op in enumerate(graph.ops)
        ]
        self.flops = {
            node: _dot_flops(graph, node) for node, op in enumerate(graph.ops) if op.name == "dot"
        }
        callers: dict[int, float] = {}
        for computation in graph.computations:
            if computation.caller is not None and graph.ops[computation.caller].name == "while":
                trips = computation.trip_count
                callers[computation.caller] = UNKNOWN_TRIPS if trips is None else float(trips)
        self.trips = callers

    def _vectorises(self, node: int) -> bool:
        name = self.graph.ops[node].name
        return self.elements[node] >= SHORT and name not in ("gather", "dynamic-slice")

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
            dispatch = 0.0 if native else THUNK_NS
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
        op = self.graph.ops[item]
        if op.kind is OpKind.STRUCTURE or op.name in _FREE:
            return None
        if op.kind is OpKind.CONTROL:
            return 0.0 if native else LOOP_NS * self.trips.get(item, 1.0)
        if item in self.flops:
            return self._dot_ns(item, native)
        moved = self._move_ns(self.nbytes[item]) + sum(
            self._move_ns(self.nbytes[operand]) for operand in self.graph.operand_lists[item]
        )
        call = CALL_NS[UnitKind.RUNTIME] if op.kind is OpKind.RUNTIME and not native else 0.0
        return call + self.elements[item] * self.per_element[item] + moved

    def _dot_ns(self, node: int, native: bool) -> float:
        if native:
            return self.flops[node] / NATIVE_DOT_FLOPS_PER_NS
        return CALL_NS[UnitKind.RUNTIME] + self.flops[node] / DOT_FLOPS_PER_NS

    def _cluster_ns(self, cluster: Cluster, native: bool) -> float:
        graph = self.graph
        unit = graph.units[cluster.unit]
        library = unit.kind is UnitKind.LIBRARY
        work, traffic = self._work_and_traffic(cluster, native, library)
        if native:
            return work + traffic
        if library:
            return CALL_NS[unit.kind] + (work + traffic) / max(1, self.cores)
        if unit.threads > 1:
            return PARALLEL_NS + (work + traffic) / unit.threads
        return work + traffic

    def _work_and_traffic(
        self, cluster: Cluster, native: bool, library: bool
    ) -> tuple[float, float]:
        """Nanoseconds of computing and of moving data, on one core.

        Users that read a node at their own index share one evaluation of it; every other use adds
        its own. The library computes every node once.
        """
        ops, operand_lists, elements = self.graph.ops, self.graph.operand_lists, self.elements
        inside = set(cluster.nodes)
        count: dict[int, float] = {}
        reads: dict[int, float] = {}
        for output in cluster.outputs:
            count[output] = float(self._written_elements(output))
        work = 0.0
        for node in reversed(cluster.nodes):
            here = float(elements[node]) if library else count.get(node, 0.0)
            op = ops[node]
            share_all = op.kind is OpKind.REDUCING or op.name in _WHOLE_OPERAND
            if node in self.flops:
                work += self.flops[node] / (
                    DOT_FLOPS_PER_NS if library else NATIVE_DOT_FLOPS_PER_NS
                )
                share_all = True
            elif op.kind is OpKind.REDUCING and operand_lists[node]:
                operand = operand_lists[node][0]
                work += max(here, float(elements[operand])) * self.per_element[node]
            else:
                work += here * self.per_element[node]
            for operand in operand_lists[node]:
                each = here
                if share_all:
                    each *= max(elements[operand] / max(1, elements[node]), 1e-9)
                target = count if operand in inside else reads
                if op.kind is OpKind.ELEMENTWISE:
                    target[operand] = max(target.get(operand, 0.0), each)
                else:
                    target[operand] = target.get(operand, 0.0) + each
        traffic = sum(
            self._move_ns(self._bytes_of(output, count[output])) for output in cluster.outputs
        )
        for operand, evaluations in reads.items():
            read = min(evaluations, float(elements[operand]))
            traffic += self._move_ns(self._bytes_of(operand, read))
        return work, traffic

    def _written_elements(self, node: int) -> int:
        """Elements that a root writes; an update in place writes only the update."""
        operands = self.graph.operand_lists[node]
        if self.graph.ops[node].name == "dynamic-update-slice" and len(operands) > 1:
            return self.elements[operands[1]]
        return self.elements[node]

    def _bytes_of(self, node: int, elements: float) -> float:
        return self.nbytes[node] * elements / max(1, self.elements[node])

    def _move_ns(self, nbytes: float) -> float:
        return nbytes / (BYTES_PER_NS if nbytes > CACHED_BYTES else CACHED_BYTES_PER_NS)


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
        self._default_s: float | None = None
        self._known: dict[bytes, float] = {}

    @property
    def default_s(self) -> float:
        """Seconds of XLA's own decisions by this model."""
        if self._default_s is None:
            self._default_s = self.model.total_seconds(planned(self.graph, self.graph.default))
        return self._default_s

    def score(self, batch: DecisionBatch) -> Scores:
        """Times of B vectors inside the graph's masks; equal vectors are computed once."""
        seconds = np.empty(len(batch), np.float64)
        known = 0
        for index in range(len(batch)):
            decisions = batch[index]
            key = vector_key(decisions)
            found = self._known.get(key)
            if found is None:
                found = self.model.total_seconds(planned(self.graph, decisions))
                if len(self._known) >= _KNOWN_VECTORS:
                    self._known.clear()
                self._known[key] = found
            else:
                known += 1
            seconds[index] = found
        return Scores(seconds, (None,) * len(batch), measured=0, known=known)


_KNOWN_VECTORS: Final = 4096
"""Vectors remembered; the memory is emptied when it is full."""


def _dot_flops(graph: Graph, node: int) -> float:
    """Multiplications and additions of a dot."""
    attributes = HloInstructionProto.FromString(graph.source.attributes[node])
    dims = graph.dim_lists[graph.operand_lists[node][0]]
    flops = 2.0 * float(graph.elements[node])
    for dimension in attributes.dot_dimension_numbers.lhs_contracting_dimensions:
        flops *= dims[dimension]
    return flops
