"""Native regions: which items of a computation become one function, and the final order.

XLA:CPU can emit a whole called computation, loops included, as one native function. Items whose unit
is native are grouped by *level*: the number of times a dependency path switches between native and
other items on its way there. Items of one level never have a path through another item between them, so each
level is convex and levels never form a cycle. Long straight-line runs are cut, because compile time of one
function grows faster than its length.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

from graphopt.hlo.clusters import Clustering
from graphopt.hlo.graph import Graph
from graphopt.hlo.items import Items
from graphopt.hlo.ops import OpKind
from graphopt.machine import UnitKind

MIN_MEMBERS: Final = 2
"""A single straight-line item gains nothing as a region; control flow does."""

MAX_REGION_NODES: Final = 768
"""Nodes in one straight-line region; measured compile time stays below XLA's own up to here."""


@dataclass
class Region:
    """Items that are emitted as one native function.

    Attributes:
        items: members in execution order.
    """

    items: list[int]


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
    order = _ordered(graph, items, {item: [item] for item in items.members}, {})
    if not inside_native:
        for region in _regions(graph, clustering, items, order):
            for item in region.items:
                plan.region_of[item] = region
    groups: dict[int, list[int]] = {}
    leader: dict[int, int] = {}
    for item in order:
        region_or_none = plan.region_of.get(item)
        name = item if region_or_none is None else region_or_none.items[0]
        groups.setdefault(name, []).append(item)
        leader[item] = name
    for name in _ordered(graph, items, groups, leader):
        found = plan.region_of.get(name)
        plan.entries.append(name if found is None else found)
    return plan


def _is_native(graph: Graph, clustering: Clustering, item: int) -> bool:
    cluster = clustering.clusters.get(item)
    unit = clustering.unit[item] if cluster is None else cluster.unit
    return graph.units[unit].kind is UnitKind.NATIVE


def _regions(
    graph: Graph, clustering: Clustering, items: Items, order: list[int]
) -> list[Region]:
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
    regions = []
    for members in levels.values():
        for run in _cut(graph, clustering, members):
            if len(run) >= MIN_MEMBERS or graph.ops[run[0]].kind is OpKind.CONTROL:
                regions.append(Region(run))
            else:
                clustering.overrides.append((run[0], "region-too-small"))
    return regions


def _is_neutral(graph: Graph, clustering: Clustering, item: int) -> bool:
    """No computation: views and tuples, which a region can repeat inside."""
    if item in clustering.clusters:
        return False
    return graph.ops[item].kind is OpKind.STRUCTURE or graph.ops[item].name == "bitcast"


def _cut(graph: Graph, clustering: Clustering, members: list[int]) -> list[list[int]]:
    """Cuts a run where its straight-line code gets too long; any cut of an ordered run is legal."""
    runs: list[list[int]] = [[]]
    size = 0
    for item in members:
        cluster = clustering.clusters.get(item)
        size += 1 if cluster is None else len(cluster.nodes)
        if size > MAX_REGION_NODES and runs[-1]:
            runs.append([])
            size = 0
        runs[-1].append(item)
    return runs


def _ordered(
    graph: Graph, items: Items, groups: dict[int, list[int]], leader: dict[int, int]
) -> list[int]:
    """Topological order of groups, otherwise as in the incoming module."""
    position = graph.source.position
    waiting = dict.fromkeys(groups, 0)
    follows: dict[int, list[int]] = {name: [] for name in groups}
    for name, members in groups.items():
        before = {leader.get(b, b) for item in members for b in items.before(item)} - {name}
        waiting[name] = len(before)
        for earlier in before:
            follows[earlier].append(name)
    ready = [(position[name], name) for name, count in waiting.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        _, name = heapq.heappop(ready)
        order.append(name)
        for after in follows[name]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (position[after], after))
    return order
