"""Native regions: which items of a computation become one function, and the final order.

XLA:CPU can emit a whole called computation, loops included, as one native function. Items whose unit
is native are grouped by *level*: the number of times a dependency path switches between native and
other items on its way there. Items of one level never have a path through another item between them, so each
level is convex and levels never form a cycle. Long straight-line runs are cut, because compile time of one
function grows faster than its length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.toposort import topological_order
from graphopt.hlo.plan.clusters import Clustering
from graphopt.hlo.plan.joins import Items
from graphopt.machine import UnitKind

MIN_MEMBERS: Final = 2
"""A single straight-line item gains nothing as a region; control flow does, and so does a product,
which would be a call of the runtime."""

MAX_REGION_NODES: Final = 768
"""Nodes, those of inner computations included, from which a run is cut; one loop is never cut."""


@dataclass
class Region:
    """Items that are emitted as one native function.

    Attributes:
        items: members in execution order.
    """

    items: list[int]


def item_reads(graph: Graph, clustering: Clustering, item: int) -> list[int]:
    """Nodes in memory that an item reads."""
    cluster = clustering.clusters.get(item)
    return graph.operand_lists[item] if cluster is None else cluster.operands


def is_repeated(graph: Graph, node: int) -> bool:
    """True for a tuple or scalar constant, which a region writes again for itself."""
    name = graph.ops[node].name
    return name == "tuple" or (name == "constant" and not graph.dim_lists[node])


def is_inside(
    graph: Graph, clustering: Clustering, items: Items, members: set[int], node: int
) -> bool:
    """True if a value is computed by `members`, or is a view of one that is."""
    if items.item_of[node] in members:
        return True
    if node in clustering.clusters:
        return False
    if graph.ops[node].name in ("get-tuple-element", "bitcast"):
        return is_inside(graph, clustering, items, members, graph.operand_lists[node][0])
    return False


def region_inputs(graph: Graph, clustering: Clustering, items: Items, region: Region) -> list[int]:
    """Nodes whose values a region takes from outside, in order of first use.

    Tuples are taken apart and scalar constants repeated inside, except in a region of one item, which
    takes that item's operands as they are.
    """
    reads = dict.fromkeys(
        node for item in region.items for node in item_reads(graph, clustering, item)
    )
    if len(region.items) == 1:
        return list(reads)
    members = set(region.items)
    out: dict[int, None] = {}
    stack = list(reversed(reads))
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if node in seen or items.item_of[node] in members:
            continue
        seen.add(node)
        if is_repeated(graph, node) or is_inside(graph, clustering, items, members, node):
            stack.extend(reversed(graph.operand_lists[node]))
        else:
            out[node] = None
    return list(out)


@dataclass
class Plan:
    """What one computation will consist of.

    Attributes:
        items: items and their dependencies.
        entries: items and regions in execution order.
        region_of: item -> the region that contains it.
    """

    items: Items
    entries: list[int | Region] = field(default_factory=list)
    region_of: dict[int, Region] = field(default_factory=dict)


def make_plan(graph: Graph, clustering: Clustering, items: Items) -> Plan:
    """Groups native items and orders everything."""
    plan = Plan(items)
    caller = items.computation.caller
    inside_native = caller is not None and _is_native(graph, clustering, caller)
    order = topological_order(
        {item: items.before(item) for item in items.members}, graph.source.position.__getitem__
    )
    if not any(_is_native(graph, clustering, item) for item in order):
        plan.entries.extend(order)
        return plan
    for region in _regions(graph, clustering, items, order, inside_native):
        for item in region.items:
            plan.region_of[item] = region
    dependencies = _dependencies(graph, clustering, plan, order)
    for name in topological_order(dependencies, graph.source.position.__getitem__):
        found = plan.region_of.get(name)
        plan.entries.append(name if found is None else found)
    return plan


def _dependencies(
    graph: Graph, clustering: Clustering, plan: Plan, order: list[int]
) -> dict[int, set[int]]:
    """What each entry must follow; a region goes by the name of its first item."""
    items = plan.items

    def name(item: int) -> int:
        region = plan.region_of.get(item)
        return item if region is None else region.items[0]

    before: dict[int, set[int]] = {}
    for item in order:
        region = plan.region_of.get(item)
        if region is None:
            before[item] = {name(b) for b in items.before(item)}
        elif item == region.items[0]:
            inputs = region_inputs(graph, clustering, items, region)
            earlier = {items.item_of[node] for node in inputs}
            for member in region.items:
                earlier |= items.ordered[member]
            before[item] = {name(b) for b in earlier} - {item}
    return before


def _is_native(graph: Graph, clustering: Clustering, item: int) -> bool:
    cluster = clustering.clusters.get(item)
    unit = clustering.unit[item] if cluster is None else cluster.unit
    return graph.units[unit].kind is UnitKind.NATIVE


def _regions(
    graph: Graph, clustering: Clustering, items: Items, order: list[int], inside_native: bool
) -> list[Region]:
    """The regions of a computation; inside native code only loops that are native themselves."""
    if inside_native:
        return [Region([item]) for item in order if item in clustering.native_calls]
    regions = []
    for members in _levels(graph, clustering, items, order).values():
        control = [item for item in members if graph.ops[item].kind is OpKind.CONTROL]
        if len(control) == len(members):
            regions += [Region([item]) for item in members]
            continue
        for run in _cut(graph, clustering, members):
            if len(run) >= MIN_MEMBERS or run[0] in control or graph.ops[run[0]].name == "dot":
                regions.append(Region(run))
            else:
                clustering.overrides.append((run[0], "region-too-small"))
    return regions


def _levels(
    graph: Graph, clustering: Clustering, items: Items, order: list[int]
) -> dict[int, list[int]]:
    """Native items by level, each in order."""
    native_level: dict[int, int] = {}
    other_level: dict[int, int] = {}
    levels: dict[int, list[int]] = {}
    for item in order:
        before = items.before(item)
        for_native = max((native_level[b] for b in before), default=0)
        for_other = max((other_level[b] for b in before), default=0)
        if _is_native(graph, clustering, item):
            levels.setdefault(for_native, []).append(item)
            for_other = max(for_other, for_native + 1)
        elif not _is_neutral(graph, clustering, item):
            for_native = max(for_native, for_other + 1)
        native_level[item], other_level[item] = for_native, for_other
    return levels


def _is_neutral(graph: Graph, clustering: Clustering, item: int) -> bool:
    """No computation: views and tuples, which a region can repeat inside; a barrier stays where it is."""
    if item in clustering.clusters or graph.ops[item].name == "opt-barrier":
        return False
    return graph.ops[item].kind is OpKind.STRUCTURE or graph.ops[item].name == "bitcast"


def _cut(graph: Graph, clustering: Clustering, members: list[int]) -> list[list[int]]:
    """Cuts a run where its code gets too long; any cut of an ordered run is legal.

    Two functions also compile on two cores.
    """
    runs: list[list[int]] = [[]]
    size = 0
    for item in members:
        cluster = clustering.clusters.get(item)
        length = graph.nested_sizes[item] if cluster is None else len(cluster.nodes)
        if size + length > MAX_REGION_NODES and runs[-1]:
            runs.append([])
            size = 0
        size += length
        runs[-1].append(item)
    return runs
