"""What a computation will consist of: clusters and plain instructions, with their dependencies.

An item is named by one node: the first output of its cluster, or the node of a plain instruction.
Dependencies come from operands, from control edges, and from in-place promises that the operands do
not already guarantee ("order" edges: reader before writer).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from graphopt.hlo.clusters import Cluster, Clustering
from graphopt.hlo.decisions import Decisions
from graphopt.hlo.graph import Computation, Graph
from graphopt.hlo.ops import OpKind
from graphopt.machine import UnitKind

JOIN_CANDIDATES: Final = 4
"""Clusters tried as partners of one joining root, nearest first."""

JOIN_SEARCH: Final = 4000
"""Items visited at most to prove that a join makes no cycle."""

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


def make_items(
    graph: Graph, decisions: Decisions, clustering: Clustering
) -> list[Items]:
    """Items of every computation, multi-output joins done."""
    return [
        _items_of(graph, decisions, clustering, computation, index)
        for index, computation in enumerate(graph.computations)
    ]


def _items_of(
    graph: Graph,
    decisions: Decisions,
    clustering: Clustering,
    computation: Computation,
    index: int,
) -> Items:
    items = Items(computation)
    for node in range(computation.first, computation.end):
        if clustering.in_memory[node]:
            items.members.append(node)
            items.item_of[node] = node
    needed = _needed(graph, clustering, items)
    items.members = [item for item in items.members if item in needed]
    items.item_of = {item: item for item in items.members}
    for item in items.members:
        items.operands[item] = {
            items.item_of[o] for o in _reads(graph, clustering, item)
        } - {item}
        items.ordered[item] = set()
    _add_control(graph, items)
    _add_order_edges(graph, clustering, items, index)
    if decisions.join[computation.first : computation.end].any():
        _Joiner(graph, decisions, clustering, items).run()
    return items


def _reads(graph: Graph, clustering: Clustering, item: int) -> list[int]:
    cluster = clustering.clusters.get(item)
    return graph.operand_lists[item] if cluster is None else cluster.operands


def _needed(graph: Graph, clustering: Clustering, items: Items) -> set[int]:
    """Items that are used; scalar constants that only clusters use are held inside those."""
    used = {items.computation.root}
    for item in items.members:
        if graph.ops[item].name != "constant":
            used.add(item)
            used.update(_reads(graph, clustering, item))
    return used


def _add_control(graph: Graph, items: Items) -> None:
    first, end = items.computation.first, items.computation.end
    for before, after in graph.control.tolist():
        if first <= after < end and before in items.item_of and after in items.item_of:
            items.ordered[items.item_of[after]].add(items.item_of[before])


def _add_order_edges(
    graph: Graph, clustering: Clustering, items: Items, index: int
) -> None:
    """Readers of a buffer come before the item that overwrites it."""
    in_place = graph.in_place
    writers = in_place.writer[index]
    if not writers:
        return
    for item in items.members:
        cluster = clustering.clusters.get(item)
        bits = 0
        for node in (item,) if cluster is None else cluster.nodes:
            bits |= in_place.reads[node]
        bits &= ~in_place.before[item]
        while bits:
            lowest = bits & -bits
            bits ^= lowest
            writer = writers[lowest.bit_length() - 1]
            if writer != item:
                items.ordered[writer].add(item)


class _Joiner:
    """Makes joining roots further outputs of an earlier cluster of the same shape and unit."""

    def __init__(
        self, graph: Graph, decisions: Decisions, clustering: Clustering, items: Items
    ) -> None:
        self.graph = graph
        self.join = decisions.join
        self.clustering = clustering
        self.items = items
        self.writers = set(graph.in_place.writer[graph.computations.index(items.computation)])
        self.kinds = [unit.kind for unit in graph.units]
        self.recent: dict[tuple[object, ...], list[int]] = {}

    def run(self) -> None:
        """Visits roots in order; the first legal partner of the nearest few wins."""
        for item in list(self.items.members):
            cluster = self.clustering.clusters.get(item)
            if cluster is None or not self._can_share(item, cluster):
                continue
            signature = self._signature(item, cluster)
            candidates = self.recent.setdefault(signature, [])
            if self.join[item]:
                partner = next(
                    (p for p in reversed(candidates[-JOIN_CANDIDATES:]) if self._legal(p, item)),
                    None,
                )
                if partner is not None:
                    self._merge(partner, item)
                    continue
                self.clustering.overrides.append((item, "no-partner"))
            candidates.append(item)

    def _can_share(self, item: int, cluster: Cluster) -> bool:
        op = self.graph.ops[item]
        return (
            self.kinds[cluster.unit] in (UnitKind.LOOP, UnitKind.NATIVE)
            and not self.graph.is_tuple(item)
            and item not in self.writers
            and op.name not in ("bitcast", "dynamic-update-slice")
            and self.graph.elements[item] > 0
        )

    def _signature(self, item: int, cluster: Cluster) -> tuple[object, ...]:
        layout = self.graph.source.shapes[item].layout.minor_to_major
        return (tuple(self.graph.dim_lists[item]), tuple(layout), cluster.unit)

    def _legal(self, partner: int, item: int) -> bool:
        if len(self.clustering.clusters[partner].outputs) >= MAX_OUTPUTS:
            return False
        if partner in self.items.operands[item] and not self._reads_elementwise(partner, item):
            return False
        return not self._reaches_around(partner, item)

    def _reads_elementwise(self, partner: int, item: int) -> bool:
        """True if the item reads the partner's outputs only at its own index."""
        outputs = set(self.clustering.clusters[partner].outputs)
        reached = {item}
        for node in reversed(self.clustering.clusters[item].nodes):
            if node in reached:
                elementwise = self.graph.ops[node].kind is OpKind.ELEMENTWISE
                for operand in self.graph.operand_lists[node]:
                    if operand in outputs and not elementwise:
                        return False
                    if elementwise:
                        reached.add(operand)
            elif outputs & set(self.graph.operand_lists[node]):
                return False
        return True

    def _reaches_around(self, partner: int, item: int) -> bool:
        """True if a path from the partner to the item passes through a third item."""
        items = self.items
        first = min(self.clustering.clusters[partner].outputs)
        stack = [i for i in items.before(item) if i != partner]
        seen = set(stack)
        while stack:
            if len(seen) > JOIN_SEARCH:
                return True
            current = stack.pop()
            for before in items.before(current):
                if before == partner:
                    return True
                if before not in seen and self._last_output(before) > first:
                    seen.add(before)
                    stack.append(before)
        return partner in items.ordered[item]

    def _last_output(self, item: int) -> int:
        cluster = self.clustering.clusters.get(item)
        return item if cluster is None else max(cluster.outputs)

    def _merge(self, partner: int, item: int) -> None:
        items, clustering = self.items, self.clustering
        into, joined = clustering.clusters[partner], clustering.clusters.pop(item)
        into.outputs.extend(joined.outputs)
        into.nodes = sorted({*into.nodes, *joined.nodes})
        outputs = set(into.outputs)
        into.operands = [
            o for o in dict.fromkeys([*into.operands, *joined.operands]) if o not in outputs
        ]
        into.default = False
        for output in joined.outputs:
            clustering.cluster_of[output] = partner
            items.item_of[output] = partner
        items.operands[partner] |= items.operands.pop(item) - {partner}
        items.ordered[partner] |= items.ordered.pop(item) - {partner}
        items.members.remove(item)
        for sets in (items.operands, items.ordered):
            for before in sets.values():
                if item in before:
                    before.discard(item)
                    before.add(partner)
