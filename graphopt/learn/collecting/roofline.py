"""A scorer without measurements: a roofline over the clusters that decisions really form.

It exists so that training can be tried in seconds on any machine, and as a free first teacher. It knows
dispatch, recomputation, memory traffic and threads; its constants are orders of magnitude. What a trained
policy is worth is never judged by it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import DecisionBatch, Decisions, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.plan.clusters import Cluster, Clustering, form_clusters
from graphopt.hlo.plan.items import make_items
from graphopt.machine import UnitKind
from graphopt.measure import Scores
from graphopt.policy.network.estimates import OP_COST, OP_KIND, estimate

_THUNK_NS: Final = 55.0
_SPLIT_NS: Final = 2000.0
"""Starting the other threads."""
_CALL_NS: Final = 400.0
_VECTOR_RATE: Final = 12.0
_SCALAR_RATE: Final = 1.5
_FEW_ELEMENTS: Final = 16
_BYTES_PER_NS: Final = 15.0


class AnalyticScorer:
    """A `graphopt.measure.Scorer` that computes times from shapes.

    Attributes:
        name: ``analytic``.
        graph: the graph whose decisions it scores.
        deterministic: always True.
    """

    name = "analytic"
    deterministic = True

    def __init__(self, graph: Graph) -> None:
        """Estimates every node once."""
        self.graph = graph
        times = estimate(graph)
        self._cost = OP_COST[graph.opcode].tolist()
        self._kind = OP_KIND[graph.opcode].tolist()
        self._elements = graph.elements.tolist()
        self._bytes = graph.nbytes.tolist()
        self._executions = graph.executions.tolist()
        self._is_call = (OP_KIND[graph.opcode] == int(OpKind.CONTROL)).tolist()
        self._free = [op.kind is OpKind.STRUCTURE or op.name == "bitcast" for op in graph.ops]
        # What a call runs is counted at the nodes that it runs; what is left is its own overhead.
        own = times.total / graph.executions
        self._by_thunk = np.where(self._is_call, own, times.default).tolist()
        self._by_native = np.where(self._is_call, 0.0, times.native).tolist()

    @cached_property
    def default_s(self) -> float:
        """Seconds of XLA's own decisions, by the same model."""
        return self._seconds(self.graph.default)

    def score(self, batch: DecisionBatch) -> Scores:
        """Times of B decision vectors; none fails."""
        seconds: NDArray[np.float64] = np.array(
            [self._seconds(batch[i]) for i in range(len(batch))]
        )
        return Scores(seconds, (None,) * len(batch), known=len(batch))

    def _seconds(self, decisions: Decisions) -> float:
        graph = self.graph
        clustering = form_clusters(graph, decisions)
        items = make_items(graph, decisions, clustering)
        total = 0.0
        for computation in items:
            for node in computation.members:
                if not self._free[node] or node in clustering.clusters:
                    total += self._executions[node] * self._item(node, clustering)
        return max(total, 1.0) * 1e-9

    def _item(self, node: int, clustering: Clustering) -> float:
        """Nanoseconds of one item, once."""
        unit = self.graph.units[clustering.unit[node]]
        cluster = clustering.clusters.get(node)
        if cluster is None:
            native = unit.kind is UnitKind.NATIVE
            return float(self._by_native[node] if native else self._by_thunk[node])
        work = self._work(cluster)
        traffic = sum(self._bytes[o] for o in (*cluster.outputs, *cluster.operands)) / _BYTES_PER_NS
        if unit.kind is UnitKind.NATIVE:
            return float(work + traffic)
        if unit.kind is UnitKind.LIBRARY:
            return float(_CALL_NS + max(work, traffic) / unit.threads)
        start = _THUNK_NS + (_SPLIT_NS if unit.threads > 1 else 0.0)
        return float(start + (work + traffic) / unit.threads)

    def _work(self, cluster: Cluster) -> float:
        """Nanoseconds of computing a cluster on one core, recomputation included."""
        evaluations = dict.fromkeys(cluster.nodes, 0.0)
        for output in cluster.outputs:
            evaluations[output] = float(self._elements[output])
        total = 0.0
        for node in reversed(cluster.nodes):
            count = evaluations[node]
            operands = self.graph.operand_lists[node]
            if self._kind[node] == OpKind.REDUCING and operands:
                count *= max(self._elements[operands[0]] / max(self._elements[node], 1), 1.0)
            rate = _VECTOR_RATE if self._elements[node] >= _FEW_ELEMENTS else _SCALAR_RATE
            total += count * self._cost[node] / rate
            same_place = self._kind[node] == OpKind.ELEMENTWISE
            for operand in operands:
                if operand in evaluations:  # values at the same place are computed once
                    known = evaluations[operand]
                    evaluations[operand] = max(known, count) if same_place else known + count
        return total
