"""Forms single kernels of a decision vector and finds their times: what a scorer does once per name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.plan.clusters import Cluster, ClusterFormer
from graphopt.hlo.plan.joins import reads_at_own_index
from graphopt.measure.bank.kernels import COUNT, FEATURES, KernelReader
from graphopt.measure.bank.predictor import KernelModel
from graphopt.measure.bank.profile import DISPATCH_NS
from graphopt.store import Store
from graphopt.store.kernels import get_kernels

Floats = NDArray[np.float64]

_NAMES: Final = tuple(name for name, _ in FEATURES)
DOT: Final = _NAMES.index("dot")
RUNTIME: Final = _NAMES.index("runtime")

MIN_MARGINAL: Final = 0.1
"""A further output costs at least this part of its own kernel."""


@dataclass
class _Part:
    """One kernel whose time is needed.

    Attributes:
        key: name in the bank.
        features: float64 [F].
        native: an item of native code: additive, never in the bank by itself.
    """

    key: str
    features: Floats
    native: bool


@dataclass(frozen=True, eq=False)
class Request:
    """Kernels of one decision vector whose times are needed.

    Attributes:
        decisions: the vector.
        roots: (root, root that it joins or -1, whether it is inside a native region).
    """

    decisions: Decisions
    roots: Sequence[tuple[int, int, bool]]


class KernelPricer:
    """Times of kernels of one graph: from the bank where it knows them, else predicted."""

    def __init__(
        self, graph: Graph, store: Store | None, model: KernelModel, pessimism: float = 0.0
    ) -> None:
        """Reads per-node data once.

        Args:
            graph: whose kernels are priced.
            store: the bank; None predicts everything.
            model: of unmeasured kernels.
            pessimism: standard deviations (of the logarithm) added to predicted times. Above 0, a matrix
                product in a native region of which nothing is known costs at least what it costs as a call.
        """
        self.graph = graph
        self.store = store
        self.model = model
        self.pessimism = pessimism
        self.reader = KernelReader(graph)
        self.known = 0
        self.predicted = 0

    def price(self, requests: Sequence[Request]) -> tuple[Floats, Floats]:
        """Times of the kernels rooted at some nodes of some vectors.

        One look into the bank and one prediction serve all requests: both cost about a millisecond
        whatever they are asked.

        Returns:
            float64 [K], nanoseconds per execution, dispatch included; float64 [K, F], features of the roots,
            without what they share with those they join. K counts the roots of all requests, in order.
        """
        jobs: list[list[tuple[float, _Part]]] = []
        native: list[bool] = []
        for request in requests:
            former = ClusterFormer(self.graph, request.decisions)
            jobs += [self._parts(former, *root) for root in request.roots]
            native += [inside for _, _, inside in request.roots]
        values = self._times([part for job in jobs for _, part in job])
        times, features, position = [], [], 0
        for job, inside in zip(jobs, native, strict=True):
            here = slice(position, position + len(job))
            position += len(job)
            times.append(_total(job, values[here], inside))
            features.append(_features(job))
        return np.asarray(times), np.array(features).reshape(len(jobs), COUNT)

    def _parts(
        self, former: ClusterFormer, root: int, partner: int, native: bool
    ) -> list[tuple[float, _Part]]:
        """Signed kernels whose times add up to the root's: a joined one costs merged minus partner.

        The last entry of a joined root is its own kernel with weight 0: the floor of its cost.
        """
        clusters = former.isolated(root)
        if partner >= 0 and clusters:
            other = former.isolated(partner)
            if other and self._may_join(clusters[0], other[0]):
                merged = _merge(other[0], clusters[0])
                rest = [(1.0, self._cluster(c, native)) for c in clusters[1:]]
                return [
                    (1.0, self._cluster(merged, native)),
                    (-1.0, self._cluster(other[0], native)),
                    *rest,
                    (0.0, self._cluster(clusters[0], native)),
                ]
        if clusters:
            return [(1.0, self._cluster(c, native)) for c in clusters]
        features = self.reader.item_features(root)
        if native:
            features[0], features[2] = 1.0, 0.0
        return [(1.0, _Part(self.reader.item_key(root), features, native))]

    def _may_join(self, cluster: Cluster, partner: Cluster) -> bool:
        """False where the join would be refused: read at other indices, or through a third kernel."""
        if not reads_at_own_index(self.graph, partner.outputs, cluster):
            return False
        target = partner.outputs[0]
        stack = [o for o in cluster.operands if o > target]
        seen = set(stack)
        while stack:
            for operand in self.graph.operand_lists[stack.pop()]:
                if operand == target:
                    return False
                if operand > target and operand not in seen:
                    seen.add(operand)
                    stack.append(operand)
        return True

    def _cluster(self, cluster: Cluster, native: bool) -> _Part:
        key = "" if native else self.reader.cluster_key(cluster)
        features = self.reader.cluster_features(cluster)
        features[0] = float(native)
        return _Part(key, features, native)

    def _times(self, parts: list[_Part]) -> Floats:
        out = np.zeros(len(parts))
        native = np.array([p.native for p in parts], np.bool_)
        if native.any():
            out[native] = self._native_times(np.stack([p.features for p in parts if p.native]))
        keys = sorted({p.key for p in parts if not p.native})
        bank = get_kernels(self.store, keys) if self.store is not None and keys else {}
        missing = []
        for i, part in enumerate(parts):
            if part.native:
                continue
            if part.key in bank:
                out[i] = bank[part.key]
            else:
                missing.append(i)
        if missing:
            ns, deviation = self.model.predict(np.stack([parts[i].features for i in missing]))
            out[missing] = ns * np.exp(self.pessimism * deviation)
        self.known += len(parts) - len(missing)
        self.predicted += len(missing)
        return out

    def _native_times(self, features: Floats) -> Floats:
        """float64 [K]; items of native regions, of which no single one can be measured."""
        out = self.model.item.predict(features)
        products = features[:, DOT] > 0
        if self.pessimism and products.any():
            called = features[products]
            called[:, 0], called[:, RUNTIME] = 0.0, 1.0
            ns, deviation = self.model.predict(called)
            called_ns = ns * np.exp(self.pessimism * deviation) + DISPATCH_NS
            out[products] = np.maximum(out[products], called_ns)
        return out


def _total(job: list[tuple[float, _Part]], values: Floats, native: bool) -> float:
    """Nanoseconds of one root from those of its parts."""
    total = float(sum(sign * value for (sign, _), value in zip(job, values, strict=True)))
    joined = bool(job) and job[-1][0] == 0.0
    if joined:
        total = max(total, MIN_MARGINAL * float(values[-1]))
    return max(total, 0.1) + (0.0 if native or joined else DISPATCH_NS)


def _features(job: list[tuple[float, _Part]]) -> Floats:
    """float64 [F]; of one root, from those of its parts."""
    if len(job) == 1:
        return job[0][1].features
    counts = sum((sign * np.expm1(part.features) for sign, part in job), np.zeros(COUNT))
    return np.asarray(np.log1p(np.maximum(counts, 0.0)))


def _merge(one: Cluster, two: Cluster) -> Cluster:
    nodes = sorted({*one.nodes, *two.nodes})
    inside = set(nodes)
    operands = [o for o in dict.fromkeys([*one.operands, *two.operands]) if o not in inside]
    return Cluster(
        [*one.outputs, *two.outputs], nodes, operands, one.unit, work=one.work + two.work
    )
