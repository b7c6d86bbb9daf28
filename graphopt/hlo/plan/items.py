"""What a computation will consist of: clusters and plain instructions, with their dependencies.

An item is named by one node: the first output of its cluster, or the node of a plain instruction.
Dependencies come from operands, from control edges, and from in-place promises that the operands do
not already guarantee ("order" edges: reader before writer).
"""

from __future__ import annotations

from graphopt.hlo.graph.decisions import Decisions
from graphopt.hlo.graph.graph import Computation, Graph
from graphopt.hlo.plan.clusters import Clustering
from graphopt.hlo.plan.joins import Items, join_clusters, writing_item


def make_items(graph: Graph, decisions: Decisions, clustering: Clustering) -> list[Items]:
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
        items.operands[item] = {items.item_of[o] for o in _reads(graph, clustering, item)} - {item}
        items.ordered[item] = set()
    _add_control(graph, clustering, items)
    _add_order_edges(graph, clustering, items, index)
    if decisions.join[computation.first : computation.end].any():
        join_clusters(graph, decisions, clustering, items)
    return items


def _reads(graph: Graph, clustering: Clustering, item: int) -> list[int]:
    cluster = clustering.clusters.get(item)
    return graph.operand_lists[item] if cluster is None else cluster.operands


def _needed(graph: Graph, clustering: Clustering, items: Items) -> set[int]:
    """Items that are used; constants that only clusters use are held inside those."""
    used = {items.computation.root}
    for item in items.members:
        if graph.ops[item].name != "constant":
            used.add(item)
            used.update(_reads(graph, clustering, item))
    return used


def _add_control(graph: Graph, clustering: Clustering, items: Items) -> None:
    first, end = items.computation.first, items.computation.end
    for before, after in graph.control.tolist():
        if first <= after < end and before in items.item_of and after in items.item_of:
            writer = writing_item(graph, clustering, after)
            items.ordered[items.item_of[writer]].add(items.item_of[before])


def _add_order_edges(graph: Graph, clustering: Clustering, items: Items, index: int) -> None:
    """Readers of a buffer come before the item that overwrites it."""
    in_place = graph.in_place
    writers = [writing_item(graph, clustering, node) for node in in_place.writer[index]]
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
