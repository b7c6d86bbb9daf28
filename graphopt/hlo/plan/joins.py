"""Items of a computation, and multi-output fusion: merging clusters without making a cycle.

A root that asks to join becomes a further output of an earlier cluster with the same shape, layout and
unit. The nearest few such clusters are tried, nearest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from graphopt.hlo.graph.decisions import Decisions
from graphopt.hlo.graph.graph import Computation, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.plan.clusters import Cluster, Clustering
from graphopt.machine import UnitKind

JOIN_CANDIDATES: Final = 4
"""Clusters tried as partners of one joining root, nearest first."""

JOIN_WINDOW: Final = 4000
"""Most items between two clusters that join."""

MAX_OUTPUTS: Final = 64
"""Most outputs of one cluster."""


@dataclass
class Items:
    """The items of one graph computation.

    Attributes:
        computation: which one.
        members: items, ascending by name.
        item_of: node in memory -> item.
        operands: item -> items whose values it reads.
        ordered: item -> items that must come before it for another reason; emitted as control
            dependencies.
    """

    computation: Computation
    members: list[int] = field(default_factory=list)
    item_of: dict[int, int] = field(default_factory=dict)
    operands: dict[int, set[int]] = field(default_factory=dict)
    ordered: dict[int, set[int]] = field(default_factory=dict)

    def before(self, item: int) -> set[int]:
        """All items that must come before an item."""
        return self.operands[item] | self.ordered[item]


def writing_item(graph: Graph, clustering: Clustering, node: int) -> int:
    """The item that writes the buffer of a value in memory.

    A kernel that ended with a bitcast by XLA's decision may end in front of it now: what was ordered
    against the kernel holds for what it has become, not for the bitcast.
    """
    while graph.ops[node].name == "bitcast":
        (operand,) = graph.operand_lists[node]
        if not (clustering.in_memory[operand] and graph.default.fuse[operand]):
            break
        node = operand
    return node


def join_clusters(graph: Graph, decisions: Decisions, clustering: Clustering, items: Items) -> None:
    """Merges joining roots into clusters of the same shape and unit, in place."""
    _Joiner(graph, decisions, clustering, items).run()


def reads_at_own_index(graph: Graph, outputs: Sequence[int], cluster: Cluster) -> bool:
    """True if a cluster reads the values `outputs`, if at all, only element by element."""
    wanted = set(outputs)
    if wanted.isdisjoint(cluster.operands):
        return True
    same_index = {cluster.outputs[0]}
    for node in reversed(cluster.nodes):
        operands = graph.operand_lists[node]
        if node in same_index and graph.ops[node].kind is OpKind.ELEMENTWISE:
            same_index.update(operands)
        elif not wanted.isdisjoint(operands):
            return False
    return True


class _Joiner:
    """Keeps a topological order of the items while they merge.

    Two items may merge if no path leads from the earlier one around through a third item to the later
    one. Such a path lies inside the window between them in the order; after a merge only that window
    is put in order again.
    """

    def __init__(
        self, graph: Graph, decisions: Decisions, clustering: Clustering, items: Items
    ) -> None:
        self.graph = graph
        self.join = decisions.join
        self.clustering = clustering
        self.items = items
        promises = graph.in_place.writer[graph.computations.index(items.computation)]
        self.writers = {writing_item(graph, clustering, node) for node in promises}
        self.kinds = [unit.kind for unit in graph.units]
        self.recent: dict[tuple[object, ...], list[int]] = {}
        self.order = list(items.members)
        self.rank = {item: i for i, item in enumerate(self.order)}
        self.merged_into: dict[int, int] = {}

    def run(self) -> None:
        """Visits roots in order; the first legal partner wins."""
        for item in list(self.items.members):
            cluster = self.clustering.clusters.get(item)
            if cluster is None or not self._can_share(item, cluster):
                continue
            candidates = self.recent.setdefault(self._signature(item, cluster), [])
            if self.join[item] and self._join_one(item, candidates):
                continue
            candidates.append(item)
        if self.merged_into:
            self._rename()

    def _join_one(self, item: int, candidates: list[int]) -> bool:
        for partner in reversed(candidates[-JOIN_CANDIDATES:]):
            if len(self.clustering.clusters[partner].outputs) >= MAX_OUTPUTS:
                continue
            outputs = self.clustering.clusters[partner].outputs
            if not reads_at_own_index(self.graph, outputs, self.clustering.clusters[item]):
                continue
            ancestors = self._window_ancestors(partner, item)
            if ancestors is not None:
                self._merge(partner, item, ancestors)
                return True
        self.clustering.overrides.append((item, "no-partner"))
        return False

    def _can_share(self, item: int, cluster: Cluster) -> bool:
        name = self.graph.ops[item].name
        return (
            self.kinds[cluster.unit] in (UnitKind.LOOP, UnitKind.NATIVE)
            and not self.graph.is_tuple(item)
            and item not in self.writers
            and name not in ("bitcast", "dynamic-update-slice")
            and self.graph.elements[item] > 0
        )

    def _signature(self, item: int, cluster: Cluster) -> tuple[object, ...]:
        layout = self.graph.source.shapes[item].layout.minor_to_major
        return (tuple(self.graph.dim_lists[item]), tuple(layout), cluster.unit)

    def _before(self, item: int) -> set[int]:
        merged = self.merged_into
        return {merged.get(b, b) for b in self.items.before(item)}

    def _window_ancestors(self, partner: int, item: int) -> set[int] | None:
        """Items between the two that the later one depends on; None if the merge is not allowed."""
        low, high = self.rank[partner], self.rank[item]
        if low >= high or high - low > JOIN_WINDOW or partner in self.items.ordered[item]:
            return None
        stack = [b for b in self._before(item) if b != partner and self.rank[b] > low]
        seen = set(stack)
        while stack:
            for before in self._before(stack.pop()):
                if before == partner:
                    return None
                if self.rank[before] > low and before not in seen:
                    seen.add(before)
                    stack.append(before)
        return seen

    def _merge(self, partner: int, item: int, ancestors: set[int]) -> None:
        items, clustering = self.items, self.clustering
        into, joined = clustering.clusters[partner], clustering.clusters.pop(item)
        into.outputs.extend(joined.outputs)
        into.nodes = sorted({*into.nodes, *joined.nodes})
        # One of the two may compute what the other reads from memory.
        inside = set(into.nodes)
        into.operands = [
            o for o in dict.fromkeys([*into.operands, *joined.operands]) if o not in inside
        ]
        into.default = False
        into.flat = into.flat if into.flat == joined.flat else None
        into.work += joined.work
        self.merged_into[item] = partner
        items.operands[partner] = (items.operands[partner] | items.operands.pop(item)) - {partner}
        items.ordered[partner] = (items.ordered[partner] | items.ordered.pop(item)) - {partner}
        self._reorder(partner, item, ancestors)

    def _reorder(self, partner: int, item: int, ancestors: set[int]) -> None:
        low, high = self.rank[partner], self.rank.pop(item)
        window = self.order[low + 1 : high]
        first = [i for i in window if i in ancestors]
        rest = [i for i in window if i not in ancestors]
        self.order[low : high + 1] = [*first, partner, *rest, item]
        for rank, name in enumerate(self.order[low:high], low):
            self.rank[name] = rank

    def _rename(self) -> None:
        """Lets all dependencies name the merged items."""
        items, merged = self.items, self.merged_into
        items.members = [item for item in items.members if item not in merged]
        for item, partner in merged.items():
            items.item_of[item] = partner
        for sets in (items.operands, items.ordered):
            for item, before in sets.items():
                if not merged.keys().isdisjoint(before):
                    sets[item] = {merged.get(b, b) for b in before} - {item}
