"""Forms single kernels of a decision vector and finds their times: what a scorer does once per name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.clusters import Cluster, ClusterFormer
from graphopt.machine import UnitKind
from graphopt.measure.features import KernelReader
from graphopt.measure.kernel_model import KernelModel
from graphopt.store import Store
from graphopt.store.kernels import get_kernels

Floats = NDArray[np.float64]

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


class KernelPricer:
    """Times of kernels of one graph: from the bank where it knows them, else predicted."""

    def __init__(self, graph: Graph, store: Store | None, model: KernelModel) -> None:
        """Reads per-node data once."""
        self.graph = graph
        self.store = store
        self.model = model
        self.reader = KernelReader(graph)
        self.kinds = [unit.kind for unit in graph.units]
        self.known = 0
        self.predicted = 0

    def price(
        self, decisions: Decisions, wanted: list[tuple[int, int]]
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Times of the kernels rooted at some nodes.

        Args:
            decisions: the vector they belong to.
            wanted: (root, root that it joins or -1).

        Returns:
            float64 [K], nanoseconds per execution; bool [K], True where the bank knew all parts.
        """
        former = ClusterFormer(self.graph, decisions)
        jobs = [self._parts(former, root, partner) for root, partner in wanted]
        parts = [part for job in jobs for _, part in job]
        values, from_bank = self._times(parts)
        times, known, position = [], [], 0
        for job in jobs:
            here = slice(position, position + len(job))
            position += len(job)
            total = float(sum(sign * v for (sign, _), v in zip(job, values[here], strict=True)))
            own = float(values[here][-1]) if job else 0.0
            times.append(max(total, MIN_MARGINAL * own) if len(job) > 2 else total)
            known.append(bool(from_bank[here].all()))
        return np.asarray(times), np.asarray(known, np.bool_)

    def _parts(self, former: ClusterFormer, root: int, partner: int) -> list[tuple[float, _Part]]:
        """Signed kernels whose times add up to the root's: a joined one costs merged minus partner.

        The last entry of a joined root is its own kernel with weight 0: the floor of its cost.
        """
        clusters = former.isolated(root)
        if partner >= 0 and clusters:
            other = former.isolated(partner)
            if other:
                merged = _merge(other[0], clusters[0])
                rest = [(1.0, self._cluster(c)) for c in clusters[1:]]
                return [
                    (1.0, self._cluster(merged)),
                    (-1.0, self._cluster(other[0])),
                    *rest,
                    (0.0, self._cluster(clusters[0])),
                ]
        if clusters:
            return [(1.0, self._cluster(c)) for c in clusters]
        native = self.kinds[former.unit[root]] is UnitKind.NATIVE
        features = self.reader.item_features(root)
        if native:
            features[0], features[2] = 1.0, 0.0
        return [(1.0, _Part(self.reader.item_key(root), features, native))]

    def _cluster(self, cluster: Cluster) -> _Part:
        native = self.kinds[cluster.unit] is UnitKind.NATIVE
        key = "" if native else self.reader.cluster_key(cluster)
        return _Part(key, self.reader.cluster_features(cluster), native)

    def _times(self, parts: list[_Part]) -> tuple[Floats, NDArray[np.bool_]]:
        out = np.zeros(len(parts))
        known = np.zeros(len(parts), np.bool_)
        native = np.array([p.native for p in parts], np.bool_)
        if native.any():
            out[native] = self.model.item.predict(np.stack([p.features for p in parts if p.native]))
            known |= native
        keys = sorted({p.key for p in parts if not p.native})
        bank = get_kernels(self.store, keys) if self.store is not None and keys else {}
        missing = []
        for i, part in enumerate(parts):
            if part.native:
                continue
            if part.key in bank:
                out[i], known[i] = bank[part.key], True
            else:
                missing.append(i)
        if missing:
            out[missing] = self.model.predict(np.stack([parts[i].features for i in missing]))[0]
        self.known += len(parts) - len(missing)
        self.predicted += len(missing)
        return out, known


def _merge(one: Cluster, two: Cluster) -> Cluster:
    nodes = sorted({*one.nodes, *two.nodes})
    inside = set(nodes)
    operands = [o for o in dict.fromkeys([*one.operands, *two.operands]) if o not in inside]
    return Cluster(
        [*one.outputs, *two.outputs], nodes, operands, one.unit, work=one.work + two.work
    )
