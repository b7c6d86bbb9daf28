"""Kernels of a decision vector: canonical keys for the bank, features for the kernel model.

A kernel is what one thunk executes: a cluster, a plain instruction, or a native region. Its key is a digest
of its body and unit without names, so that equal kernels of different graphs share one measurement.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo import Decisions, Graph, settle
from graphopt.hlo.graph.fingerprint import hash_computation
from graphopt.hlo.graph.walks import window_size
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.plan.clusters import Cluster, Clustering
from graphopt.hlo.plan.regions import Plan, Region
from graphopt.hlo.rewrite import plan
from graphopt.machine import UnitKind

FEATURES: Final[tuple[tuple[str, str], ...]] = (
    ("native", "1 for a native region"),
    ("library", "1 for a cluster of the kernel library"),
    ("runtime", "1 for a plain instruction"),
    ("threads", "most cores it may use"),
    ("items", "log1p of clusters and instructions inside (1 unless a region)"),
    ("nodes", "log1p of nodes inside"),
    ("operands", "log1p of values read from memory"),
    ("outputs", "log1p of values written"),
    ("bytes_in", "log1p of bytes of the operands"),
    ("bytes_out", "log1p of bytes of the results"),
    ("work", "log1p of operations, recomputation and inner loops included"),
    ("transcendental", "log1p of operations of functions of cost 4 or more"),
    ("indexed", "log1p of elements gathered, sliced at run time, or updated"),
    ("reduced", "log1p of elements that reductions read"),
    ("dot", "log1p of multiplications of matrix products"),
    ("sorted", "log1p of elements of sorts, transforms and custom calls"),
    ("elements", "log1p of result elements"),
    ("minor", "log1p of the minor dimension of the first result"),
    ("item_bytes", "bytes of an element of the first result"),
    ("rank", "dimensions of the first result"),
    ("moves", "log1p of elements that pads, concatenations and transposes produce"),
    ("recomputed", "work over the work of computing each node once, log"),
)
"""Name and meaning of every feature, in order."""

COUNT: Final = len(FEATURES)
_ADDITIVE: Final = (
    "nodes", "work", "transcendental", "indexed", "reduced", "dot", "sorted", "moves",
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """What one thunk executes.

    Attributes:
        key: digest of body and unit.
        features: float [F], in the order of `FEATURES`.
    """

    key: str
    features: tuple[float, ...]


class NodeCosts:
    """Per-node quantities that features add up; every array is float64 [N]."""

    def __init__(self, graph: Graph) -> None:
        """Reads the graph's columns."""
        self.graph = graph
        ops = graph.ops
        elements = graph.elements.astype(np.float64)
        names = np.array([op.name for op in ops])
        reads = np.array(
            [float(elements[o[0]]) if o else 0.0 for o in graph.operand_lists], np.float64
        )
        self.dot = np.zeros(len(graph))
        for node in np.flatnonzero((names == "dot") | (names == "convolution")).tolist():
            self.dot[node] = elements[node] * self._contracted(node)
        cost = np.array([op.cost for op in ops], np.float64)
        self.reduced = np.where(np.isin(names, ("reduce", "reduce-window")), reads, 0.0)
        for node in np.flatnonzero(names == "reduce-window").tolist():
            self.reduced[node] = elements[node] * window_size(graph, node)
        self.work = np.maximum(cost * elements, self.reduced) + 2.0 * self.dot
        self.transcendental = np.where(
            (cost >= 4) & np.array([op.kind is OpKind.ELEMENTWISE for op in ops], np.bool_),
            elements * cost,
            0.0,
        )
        self.indexed = np.where(
            np.isin(names, ("gather", "dynamic-slice", "dynamic-update-slice", "scatter")),
            np.where(names == "dynamic-update-slice", self._second(elements), elements),
            0.0,
        )
        self.sorted = np.where(
            np.isin(names, ("sort", "fft", "custom-call", "topk", "rng-bit-generator")),
            elements,
            0.0,
        )
        self.moves = np.where(np.isin(names, ("pad", "concatenate", "transpose")), elements, 0.0)

    def _second(self, elements: NDArray[np.float64]) -> NDArray[np.float64]:
        """Elements of each node's second operand."""
        second = [o[1] if len(o) > 1 else 0 for o in self.graph.operand_lists]
        return np.asarray(elements[second])

    def _contracted(self, node: int) -> float:
        """Multiplications per element of a product or convolution."""
        graph = self.graph
        proto = graph.source.protos[node]
        if graph.ops[node].name == "convolution":
            # Output features are the kernel's largest dimension that the result has, too.
            kernel = graph.operand_lists[node][1]
            shared = set(graph.dim_lists[kernel]) & set(graph.dim_lists[node])
            return float(graph.elements[kernel]) / max(shared, default=1)
        dims = graph.dim_lists[graph.operand_lists[node][0]]
        return float(
            math.prod(dims[d] for d in proto.dot_dimension_numbers.lhs_contracting_dimensions)
        )


class KernelReader:
    """Keys and features of kernels of one graph; what does not depend on decisions is computed once."""

    def __init__(self, graph: Graph) -> None:
        """Prepares per-node digests and costs."""
        self.graph = graph
        self.costs = NodeCosts(graph)
        self.elements = graph.elements.tolist()
        self.nbytes = graph.nbytes.tolist()

    @cached_property
    def node_digests(self) -> list[bytes]:
        """Digest of each node's operation and result type, called functions included."""
        graph, source = self.graph, self.graph.source
        applied: dict[int, bytes] = {}
        graph_computations = {c.id for c in graph.computations}
        out = []
        for node in range(len(graph)):
            digest = hashlib.blake2b(source.attributes(node), digest_size=16)
            digest.update(source.shapes[node].SerializeToString(deterministic=True))
            for called in source.called[node]:
                if called in graph_computations:
                    continue
                if called not in applied:
                    applied[called] = hash_computation(source.module, called)
                digest.update(applied[called])
            out.append(digest.digest())
        return out

    @cached_property
    def shape_digests(self) -> list[bytes]:
        """Digest of each node's result type and layout."""
        return [
            hashlib.blake2b(s.SerializeToString(deterministic=True), digest_size=8).digest()
            for s in self.graph.source.shapes
        ]

    def cluster_key(self, cluster: Cluster) -> str:
        """Key of a cluster."""
        graph = self.graph
        unit = graph.units[cluster.unit]
        digest = hashlib.blake2b(unit.name.encode(), digest_size=16)
        local: dict[int, int] = {}
        for operand in cluster.operands:
            local[operand] = len(local)
            digest.update(self.shape_digests[operand])
        for node in cluster.nodes:
            digest.update(self.node_digests[node])
            operands = [local[o] for o in graph.operand_lists[node]]
            digest.update(repr(operands).encode())
            local[node] = len(local)
        digest.update(repr([local[o] for o in cluster.outputs]).encode())
        if cluster.loop_kernel:
            digest.update(b"loop-kernel")
        if cluster.flat:
            digest.update(repr(cluster.flat).encode())
        if cluster.default:
            digest.update(graph.source.config[cluster.outputs[0]])
        return digest.hexdigest()

    def item_key(self, node: int) -> str:
        """Key of a plain instruction."""
        digest = hashlib.blake2b(b"plain", digest_size=16)
        digest.update(self.node_digests[node])
        for operand in self.graph.operand_lists[node]:
            digest.update(self.shape_digests[operand])
        return digest.hexdigest()

    def cluster_features(self, cluster: Cluster) -> NDArray[np.float64]:
        """float64 [F]; see `FEATURES`."""
        unit = self.graph.units[cluster.unit]
        values = self._sums(cluster.nodes)
        once = values["work"]
        values["work"] = max(cluster.work, once)
        values["recomputed"] = math.log(max(1.0, values["work"]) / max(1.0, once))
        self._traffic(values, cluster.operands, cluster.outputs)
        values["native"] = 0.0  # set for regions: a cluster by itself is an ordinary kernel
        values["library"] = float(unit.kind is UnitKind.LIBRARY)
        values["threads"] = float(unit.threads)
        return _vector(values)

    def item_features(self, node: int) -> NDArray[np.float64]:
        """float64 [F] of a plain instruction."""
        values = self._sums([node])
        self._traffic(values, self.graph.operand_lists[node], [node])
        unit = self.graph.units[self.graph.default.unit[node]]
        values["runtime"] = 1.0
        values["threads"] = float(unit.threads)
        return _vector(values)

    def _sums(self, nodes: list[int]) -> dict[str, float]:
        costs = self.costs
        index = np.asarray(nodes)
        out = dict.fromkeys((name for name, _ in FEATURES), 0.0)
        out["nodes"], out["items"] = float(len(nodes)), 1.0
        for name in _ADDITIVE[1:]:
            out[name] = float(getattr(costs, name)[index].sum())
        return out

    def _traffic(self, values: dict[str, float], operands: list[int], outputs: list[int]) -> None:
        first = outputs[0]
        dims = self.graph.dim_lists[first]
        values["operands"], values["outputs"] = float(len(operands)), float(len(outputs))
        values["bytes_in"] = float(sum(self.nbytes[o] for o in operands))
        values["bytes_out"] = float(sum(self.nbytes[o] for o in outputs))
        values["elements"] = float(sum(self.elements[o] for o in outputs))
        values["minor"] = float(dims[-1]) if dims else 1.0
        values["rank"] = float(len(dims))
        values["item_bytes"] = self.nbytes[first] / max(1, self.elements[first])


_PLAIN: Final = frozenset(
    {"native", "library", "runtime", "threads", "item_bytes", "rank", "recomputed"}
)
"""Features that are not logarithms of counts."""


def _vector(values: dict[str, float]) -> NDArray[np.float64]:
    return np.array(
        [values[n] if n in _PLAIN else math.log1p(max(0.0, values[n])) for n, _ in FEATURES]
    )


def combine(parts: list[tuple[NDArray[np.float64], float]]) -> NDArray[np.float64]:
    """Features of a region: of its parts, each with its executions per execution of the region.

    Args:
        parts: (float64 [F], executions) of every cluster and instruction inside.
    """
    features = np.stack([features for features, _ in parts])
    return combine_counts(features, np.array([times for _, times in parts]))


_NAMES: Final = [name for name, _ in FEATURES]
_PLAIN_COLUMNS: Final = np.array([name in _PLAIN for name in _NAMES], np.bool_)


def combine_counts(
    features: NDArray[np.float64], times: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Like `combine`, of float64 [K, F] and float64 [K]."""
    sums = np.log1p(times @ np.expm1(np.minimum(features, 60.0)))
    out = np.where(_PLAIN_COLUMNS, features.max(axis=0), sums)
    out[_NAMES.index("native")], out[_NAMES.index("threads")] = 1.0, 1.0
    out[_NAMES.index("library")] = out[_NAMES.index("runtime")] = 0.0
    return np.asarray(out)


def kernel_keys(graph: Graph, decisions: Decisions) -> dict[int, Kernel]:
    """Kernels of a decision vector: first item -> kernel, for everything that runs as a thunk.

    Items are nodes of the settled graph (`graphopt.hlo.settle`).
    """
    graph, decisions = settle(graph, decisions)
    clustering, plans = plan(graph, decisions)
    return kernels_of(KernelReader(graph), clustering, plans)


def kernels_of(
    reader: KernelReader, clustering: Clustering, plans: list[Plan]
) -> dict[int, Kernel]:
    """Kernels of plans; what native regions contain counts towards them."""
    collector = _Collector(reader, clustering, plans)
    return collector.run()


class _Collector:
    def __init__(self, reader: KernelReader, clustering: Clustering, plans: list[Plan]) -> None:
        self.reader = reader
        self.graph = reader.graph
        self.clustering = clustering
        self.plans = plans
        self.executions = self.graph.executions
        self.inside: dict[int, list[int]] = {}
        for index, computation in enumerate(self.graph.computations):
            if computation.caller is not None:
                self.inside.setdefault(computation.caller, []).append(index)

    def run(self) -> dict[int, Kernel]:
        """All kernels of the plans, those inside native loops left to their loop."""
        out: dict[int, Kernel] = {}
        for plan_ in self.plans:
            caller = plan_.items.computation.caller
            if caller is not None and self._native(caller):
                continue
            for entry in plan_.entries:
                if isinstance(entry, Region):
                    out[entry.items[0]] = self._region(entry)
                elif entry in self.clustering.clusters:
                    out[entry] = self._cluster(entry)
                elif self._is_kernel(entry):
                    out[entry] = self._plain(entry)
        return out

    def _native(self, node: int) -> bool:
        return self.graph.units[self.clustering.unit[node]].kind is UnitKind.NATIVE

    def _is_kernel(self, node: int) -> bool:
        op = self.graph.ops[node]
        return op.kind not in (OpKind.STRUCTURE, OpKind.CONTROL) and op.name != "bitcast"

    def _cluster(self, item: int) -> Kernel:
        cluster = self.clustering.clusters[item]
        features = self.reader.cluster_features(cluster)
        return Kernel(self.reader.cluster_key(cluster), tuple(features.tolist()))

    def _plain(self, item: int) -> Kernel:
        return Kernel(self.reader.item_key(item), tuple(self.reader.item_features(item).tolist()))

    def _region(self, region: Region) -> Kernel:
        digest = hashlib.blake2b(b"region", digest_size=16)
        parts: list[tuple[NDArray[np.float64], float]] = []
        base = float(self.executions[region.items[0]])
        for item in region.items:
            self._collect(item, base, digest, parts)
        if not parts:
            parts.append((np.zeros(COUNT), 1.0))
        return Kernel(digest.hexdigest(), tuple(combine(parts).tolist()))

    def _collect(
        self,
        item: int,
        base: float,
        digest: hashlib.blake2b,
        parts: list[tuple[NDArray[np.float64], float]],
    ) -> None:
        times = float(self.executions[item]) / base
        if item in self.clustering.clusters:
            cluster = self.clustering.clusters[item]
            digest.update(self.reader.cluster_key(cluster).encode())
            parts.append((self.reader.cluster_features(cluster), times))
        elif item in self.inside:
            digest.update(self.graph.ops[item].name.encode())
            for index in self.inside[item]:
                digest.update(repr(self.graph.computations[index].trip_count).encode())
                for inner in self.plans[index].items.members:
                    self._collect(inner, base, digest, parts)
        elif self._is_kernel(item):
            digest.update(self.reader.item_key(item).encode())
            parts.append((self.reader.item_features(item), times))
