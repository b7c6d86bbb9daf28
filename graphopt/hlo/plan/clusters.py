"""From decisions to clusters: what is computed together, and by which unit.

Each root in memory starts a cluster; the cluster takes in its fused operands, theirs, and so on. A
node that is fused into several clusters is computed in each of them. What depends on several
decisions at once is settled here, in a fixed order, each time under a rule name of
`graphopt.hlo.plan.interactions` that ends up in `Clustering.overrides`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from graphopt.hlo.graph.decisions import Decisions
from graphopt.hlo.graph.graph import FROZEN_FUSED, Graph
from graphopt.hlo.graph.layouts import flat_form
from graphopt.hlo.graph.tiled import is_tiled
from graphopt.hlo.graph.walks import own_kernel, window_size
from graphopt.hlo.module.layouts import FlatForm
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.plan.effective_units import demoted, effective_units, native_calls
from graphopt.hlo.plan.overwritten import Overwritten
from graphopt.hlo.restructure.table import CODE
from graphopt.machine import UnitKind

MAX_NODES: Final = 512
"""Largest cluster that XLA did not make itself; compile time grows faster than size."""

MAX_COPIES: Final = 24
"""Code copies of one node inside one cluster (XLA's own limit is 15 per fusion step)."""

MAX_REDUNDANCY: Final = 16.0
FREE_WORK: Final = 1 << 16
"""A node may be evaluated `MAX_REDUNDANCY` times per element, or `FREE_WORK` operations in total."""

MAX_GROWTH: Final = 6
"""Largest ratio of computed nodes to graph nodes over the whole module."""


@dataclass
class Cluster:
    """Nodes that are computed together.

    Attributes:
        outputs: nodes whose values it writes; the first gives the iteration space.
        nodes: all nodes inside, in node order (operands first), the outputs included.
        operands: nodes in memory that it reads, in order of first use; no constants held inside.
        unit: index into `Graph.units`.
        default: True if XLA made exactly this cluster for this unit.
        work: operations per execution (in units of `Op.cost`), recomputation included.
        loop_kernel: written so that XLA's loop code generator computes it, not its tiled one.
        flat: written under other dimensions (`graphopt.hlo.graph.layouts.flat_form`).
    """

    outputs: list[int]
    nodes: list[int]
    operands: list[int]
    unit: int
    default: bool = False
    work: float = 0.0
    loop_kernel: bool = False
    flat: FlatForm | None = None


@dataclass
class Clustering:
    """Clusters of a whole graph under one decision vector.

    Attributes:
        clusters: by first output, for every root that a cluster computes.
        unit: effective unit of every node: what a native loop contains is native.
        native_calls: loops and branches that were decided native themselves: functions of their own,
            also where native code around them contains them.
        in_memory: bool per node, True if its value is written to memory.
        overrides: (node, rule name): fields that interactions of several decisions settled.
    """

    clusters: dict[int, Cluster] = field(default_factory=dict)
    unit: list[int] = field(default_factory=list)
    native_calls: frozenset[int] = frozenset()
    in_memory: list[bool] = field(default_factory=list)
    overrides: list[tuple[int, str]] = field(default_factory=list)


def form_clusters(graph: Graph, decisions: Decisions, *, read_again: bool = False) -> Clustering:
    """The clusters that masked decisions give, before multi-output joins.

    Args:
        graph: of the program.
        decisions: inside its masks.
        read_again: the module that is written is only read again: its kernels have no marks.
    """
    former = ClusterFormer(graph, decisions, read_again=read_again)
    former.run()
    return former.out


class _Uses:
    """How a cluster that grows uses one node; chains of elementwise operations share one such record.

    Attributes:
        tokens: (reader that is not elementwise, operand's position) -> how many elements of the node that
            evaluates, and the copies of its code. Elementwise readers pass on their own.
        evaluations: sum over the tokens; negative before `add_up`.
        copies: sum over the tokens.
    """

    __slots__ = ("copies", "evaluations", "tokens")

    def __init__(self, tokens: dict[tuple[int, int], tuple[float, int]]) -> None:
        self.tokens = tokens
        self.evaluations = -1.0
        self.copies = 0

    def add_up(self) -> None:
        """Sums up, once all readers are known."""
        if self.evaluations < 0:
            self.evaluations = sum([e for e, _ in self.tokens.values()])
            self.copies = sum([c for _, c in self.tokens.values()])


_NO_USES: Final = _Uses({})
"""In place of those that limit nothing: the library computes every value once."""


class ClusterFormer:
    """Forms the clusters of one decision vector, all of them (`run`) or single ones (`isolated`)."""

    def __init__(self, graph: Graph, decisions: Decisions, *, read_again: bool = False) -> None:
        """Reads the vector; nothing is formed yet."""
        self.graph = graph
        self.fuse = decisions.fuse.tolist()
        self.default_fuse = graph.default_fuse
        self.read_again = read_again
        self.joins = decisions.join.tolist()
        self.loop_kernel = np.equal(decisions.restructure, CODE["loop-kernel"]).tolist()
        self.unit = effective_units(graph, decisions)
        self.default_unit = effective_units(graph, graph.default)
        self.kinds = [unit.kind for unit in graph.units]
        self.loop = next(i for i, kind in enumerate(self.kinds) if kind is UnitKind.LOOP)
        self.library_ok = graph.library_nodes[0] if self._uses_library() else []
        self.elements: list[int] = graph.elements.tolist()
        self.users_count = [len(users) for users in graph.user_lists]
        self.stays_fused = [f is not None and f[0] == FROZEN_FUSED for f in graph.source.frozen]
        self.plain_copy = graph.plain_copies.tolist()
        self.overwritten = Overwritten(graph, self.fuse)
        self.budget = MAX_GROWTH * len(graph) + 2000
        self.out = Clustering(
            in_memory=[not fused for fused in self.fuse],
            unit=self.unit,
            native_calls=native_calls(graph, decisions),
            overrides=[(n, "not-in-region") for n in demoted(graph, decisions).tolist()],
        )

    def _uses_library(self) -> bool:
        return any(self.kinds[u] is UnitKind.LIBRARY for u in set(self.unit))

    def run(self) -> None:
        """Forms all clusters, last root first, into `out`."""
        graph, in_memory = self.graph, self.out.in_memory
        for node in range(len(graph) - 1, -1, -1):
            if not in_memory[node]:
                continue
            cluster = self._cluster(node, self.unit[node]) if self._makes_cluster(node) else None
            if cluster is None:
                for operand in graph.operand_lists[node]:
                    self._write(operand, "read-from-memory")
                continue
            self.budget -= len(cluster.nodes)
            self.out.clusters[node] = cluster

    def isolated(self, root: int) -> list[Cluster]:
        """The cluster of one root as if it were alone, then those of values it writes to memory.

        Empty for a root that no cluster computes. Unlike `run` it does not depend on other roots.
        """
        if not self._makes_cluster(root):
            return []
        marks = len(self.out.overrides)
        clusters = []
        pending = [root]
        while pending:
            node = pending.pop(0)
            cluster = self._cluster(node, self.unit[node]) if self._makes_cluster(node) else None
            if cluster is not None:
                clusters.append(cluster)
            written = [n for n, _ in self.out.overrides[marks:] if n != node]
            marks = len(self.out.overrides)
            pending += written
        for node, _ in self.out.overrides:
            self.out.in_memory[node] = not self.fuse[node]
        self.out.overrides.clear()
        return clusters

    def _makes_cluster(self, node: int) -> bool:
        op = self.graph.ops[node]
        if op.name == "dot":
            return self.kinds[self.unit[node]] is UnitKind.LIBRARY
        if not op.fusible or op.name == "constant":
            return False
        if self.plain_copy[node]:
            return False
        if op.name == "bitcast":
            return not self.out.in_memory[self.graph.operand_lists[node][0]]
        return not self._left_bare(node)

    def _left_bare(self, node: int) -> bool:
        """True for an operation that XLA left outside any fusion, where nothing is decided anew.

        Beside native code these are concatenations, written block by block there, in a fusion element by
        element. New ones stand bare in a module that is read again: jaxlib 0.12 wants them in kernels.
        """
        anew = self.read_again or self.joins[node] or self.loop_kernel[node]
        kept = self.graph.ops[node].name == "concatenate" and not anew
        return (
            self.graph.source.bare[node]
            and (kept or self.kinds[self.unit[node]] is UnitKind.NATIVE)
            and self.unit[node] == self.default_unit[node]
            and not any(self.fuse[o] for o in self.graph.operand_lists[node])
        )

    def _cluster(self, root: int, unit: int) -> Cluster | None:
        """The cluster of a root; None for a dot that the library cannot take after all."""
        library = self.kinds[unit] is UnitKind.LIBRARY
        exempt = frozenset[int]()
        if self._may_be_default(root, unit):
            exempt = own_kernel(self.graph, root)
        cluster = self._grow(root, unit, exempt, library)
        if cluster is None:
            self.out.overrides.append((root, "library-operation"))
            if self.graph.ops[root].name == "dot":
                return None
            cluster = self._grow(root, self.loop, exempt, library=False)
            assert cluster is not None  # only the library refuses a cluster
        same_unit = cluster.unit == self.default_unit[root]
        cluster.default = same_unit and bool(exempt) and exempt.issuperset(cluster.nodes)
        cluster.default = cluster.default and len(exempt) == len(cluster.nodes)
        cluster.loop_kernel = self._is_loop_kernel(cluster)
        cluster.flat = self._flat_form(cluster)
        return cluster

    def _flat_form(self, cluster: Cluster) -> FlatForm | None:
        """Dimensions of kernels of odd rows, in equal parts: by decision, and all that become native code."""
        root, unit = cluster.outputs[0], self.graph.units[cluster.unit]
        own = self.kinds[self.default_unit[root]] is UnitKind.NATIVE
        becomes_native = unit.kind is UnitKind.NATIVE and not own
        chosen = becomes_native or cluster.loop_kernel or self.loop_kernel[root]
        if self.read_again or not chosen:
            return None
        form = flat_form(self.graph, root, cluster.nodes, cluster.operands)
        if form is None or form.of(self.graph.source.shapes[root]).dimensions[0] % unit.threads:
            return None
        return form

    def _is_loop_kernel(self, cluster: Cluster) -> bool:
        """True for kernels that are written for XLA's loop generator: by decision, and all that are new."""
        if self.read_again or self.kinds[cluster.unit] is not UnitKind.LOOP:
            return False
        if self.loop_kernel[cluster.outputs[0]]:
            return True
        return not cluster.default and is_tiled(self.graph, cluster.outputs[0], cluster.nodes)

    def _may_be_default(self, root: int, unit: int) -> bool:
        """Exempt from limits: loops and library calls that XLA made, native code that was native.

        Other native code is not: its emitter has no size-linear form of recomputed code.
        """
        if self.default_fuse[root]:
            return False
        return unit == self.default_unit[root] or (
            self.kinds[unit] is UnitKind.LOOP
            and self.kinds[self.default_unit[root]] is UnitKind.LOOP
        )

    def _grow(self, root: int, unit: int, exempt: frozenset[int], library: bool) -> Cluster | None:
        """Takes in fused operands, largest node index first, so that all uses are known.

        The library evaluates every value once, so only a cluster's size is limited there.
        """
        graph = self.graph
        ops, operand_lists, elements = graph.ops, graph.operand_lists, self.elements
        users_count, is_candidate, push = self.users_count, self._is_candidate, heapq.heappush
        uses = {root: _Uses({(root, -1): (float(elements[root]), 1)})}
        heap = [-root]
        inside: list[int] = []
        external: list[int] = []
        work = 0.0
        default_library = library and unit == self.default_unit[root] and bool(exempt)
        while heap:
            node = -heapq.heappop(heap)
            own = uses[node]
            own.add_up()
            if node != root and not self._keeps_fused(
                node, _NO_USES if library else own, exempt, len(inside)
            ):
                external.append(node)
                continue
            op = ops[node]
            if library and not (self.library_ok[node] or (default_library and node in exempt)):
                if node == root or self.stays_fused[node]:
                    return None
                self._write(node, "library-operation")
                external.append(node)
                continue
            if op.name == "dot" and not library:
                self._write(node, "library-operation")
                external.append(node)
                continue
            inside.append(node)
            elementwise = op.kind is OpKind.ELEMENTWISE
            work += op.cost * (elements[node] if library else own.evaluations)
            for slot, operand in enumerate(operand_lists[node]):
                known = uses.get(operand)
                if known is None:
                    shared = elementwise and users_count[operand] == 1
                    known = uses[operand] = own if shared else _Uses({})
                    if is_candidate(root, operand, exempt):
                        push(heap, -operand)
                    else:
                        external.append(operand)
                if known is own:
                    continue
                if elementwise:
                    known.tokens.update(own.tokens)
                else:
                    evaluations = own.evaluations * self._share(node, operand)
                    known.tokens[node, slot] = (evaluations, own.copies)
        inside.reverse()
        return Cluster([root], inside, external, unit, work=work)

    def _is_candidate(self, root: int, node: int, exempt: frozenset[int]) -> bool:
        # XLA's choice stands: a constant that a loop can see changes how LLVM unrolls it.
        if self.graph.ops[node].name == "constant":
            return bool(self.default_fuse[node] or (self.read_again and self.fuse[node]))
        if not self.fuse[node] or (self.out.in_memory[node] and node not in exempt):
            return False
        if self.overwritten.keeps_out(root, node):
            self._write(node, "in-place-order")
            return False
        return True

    def _share(self, node: int, operand: int) -> float:
        """Operand elements evaluated per result element."""
        op = self.graph.ops[node]
        if op.kind is OpKind.REDUCING:
            if op.name == "reduce":
                return max(1.0, self.elements[operand] / max(1, self.elements[node]))
            return float(window_size(self.graph, node)) if self.elements[operand] > 1 else 1.0
        if op.name in ("concatenate", "pad"):
            return self.elements[operand] / max(1, self.elements[node])
        return 1.0

    def _keeps_fused(
        self,
        node: int,
        uses: _Uses,
        exempt: frozenset[int],
        size: int,
    ) -> bool:
        op = self.graph.ops[node]
        if node in exempt or op.name == "constant" or self.stays_fused[node]:
            return True
        if self._is_one_number(node):
            return True
        rule = None
        if size >= MAX_NODES or self.budget - size <= 0:
            rule = "cluster-size"
        elif uses.copies > MAX_COPIES:
            rule = "code-size"
        elif (
            uses.evaluations > MAX_REDUNDANCY * self.elements[node]
            and uses.evaluations * max(op.cost, 0.25) > FREE_WORK
        ):
            rule = "redundant-work"
        if rule is None:
            return True
        self._write(node, rule)
        return False

    def _is_one_number(self, node: int) -> bool:
        """True for an array of one number everywhere: no code computes it, but memory would hold it whole."""
        operands = self.graph.operand_lists[node]
        return self.graph.ops[node].name == "broadcast" and self.elements[operands[0]] == 1

    def _write(self, node: int, rule: str) -> None:
        if not self.out.in_memory[node]:
            self.out.in_memory[node] = True
            self.out.overrides.append((node, rule))
