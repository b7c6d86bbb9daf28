"""Nanoseconds of single nodes on one core: what `graphopt.costs.model` adds up."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from graphopt.costs import evaluations
from graphopt.costs.elements import (
    element_ns,
    library_element_ns,
    reduced_ns,
    sooner_by_library_ns,
    tiled_ns,
)
from graphopt.costs.windows import WindowCosts, window_costs
from graphopt.hlo import Graph
from graphopt.hlo.graph.tiled import MIN_ELEMENTS, holds_complex, is_tiled
from graphopt.hlo.graph.walks import own_kernel, roots_around
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import CpuCosts, UnitKind, own_costs


def all_windows(graph: Graph, costs: CpuCosts) -> dict[int, WindowCosts]:
    """Costs of every reduce-window."""
    nodes = (node for node, op in enumerate(graph.ops) if op.name == "reduce-window")
    return {node: window_costs(graph, node, costs) for node in nodes}


def node_work(
    graph: Graph,
    costs: CpuCosts | None = None,
    library: Collection[int] | None = None,
    windows: Mapping[int, WindowCosts] | None = None,
) -> list[float]:
    """Nanoseconds to compute each node once on one core, memory traffic of roots included.

    Args:
        graph: of the program.
        costs: of the machine; this one's if None.
        library: reductions that the library computes, if they are known already.
        windows: costs of every reduce-window, likewise.
    """
    costs = costs or own_costs()
    out = []
    fused = graph.default.fuse.tolist()
    elements, nbytes = graph.elements.tolist(), graph.nbytes.tolist()
    library = library_extra(graph, costs) if library is None else library
    windows = all_windows(graph, costs) if windows is None else windows
    for node, op in enumerate(graph.ops):
        if op.kind is OpKind.STRUCTURE or op.kind is OpKind.CONTROL or op.name == "bitcast":
            out.append(0.0)
            continue
        written = _written(graph, node)
        if node in windows:
            ns = windows[node].loop_ns
        else:
            ns = compute_ns(graph, node, costs, elements[written], node in library)
        if not fused[node]:
            moved = nbytes[written]
            cached = moved <= costs.cached_bytes
            ns += moved / (costs.cached_bytes_per_ns if cached else costs.bytes_per_ns)
        out.append(ns)
    return out


def _written(graph: Graph, node: int) -> int:
    """The node whose elements are computed and written: the update, where a node writes in place."""
    frozen = graph.source.frozen[node]
    if frozen is not None and frozen[1] == "in-place-update":
        return graph.operand_lists[node][1]
    return node


def compute_ns(graph: Graph, node: int, costs: CpuCosts, count: int, in_library: bool) -> float:
    """Nanoseconds to compute `count` elements of a node; a reduction is computed as a whole."""
    op = graph.ops[node]
    if op.name == "reduce":
        read = float(max(graph.elements[node], graph.elements[graph.operand_lists[node][0]]))
        return read * (costs.sum_rows_ns if in_library else reduced_ns(graph, node, costs))
    if in_library:
        return count * library_element_ns(graph, node, costs)
    if count < costs.few_elements:
        return count * op.cost / costs.scalar_operations_per_ns
    if op.name == "gather":
        return count * costs.gather_ns
    if evaluations.turns(graph, node):
        return count * costs.turn_ns
    return count * element_ns(graph, node, costs=costs)


def library_extra(graph: Graph, costs: CpuCosts | None = None) -> dict[int, float]:
    """Reductions and slow functions in calls of the library -> what they take longer in a loop kernel, ns."""
    costs = costs or own_costs()
    fused = graph.default.fuse
    inside = [False] * len(graph)
    out = {}
    for node in range(len(graph) - 1, -1, -1):
        if fused[node]:
            inside[node] = any(inside[user] for user in graph.user_lists[node])
        else:
            inside[node] = graph.units[graph.default.unit[node]].kind is UnitKind.LIBRARY
        if inside[node] and graph.ops[node].name == "reduce":
            read = float(graph.elements[graph.operand_lists[node][0]])
            out[node] = read * (reduced_ns(graph, node, costs) - costs.sum_rows_ns)
        elif inside[node] and (extra := sooner_by_library_ns(graph, node, costs)) > 0.0:
            out[node] = extra
    return out


def tiled_extra(graph: Graph, costs: CpuCosts) -> dict[int, float]:
    """Operations that the tiled code generator computes -> what they take longer in native code, ns."""
    out = {}
    for node, op in enumerate(graph.ops):
        if op.name not in costs.looped_functions_ns or graph.elements[node] < MIN_ELEMENTS:
            continue
        longer = -tiled_ns(graph, node, costs)
        if longer > 0.0 and _is_in_tiles(graph, node):
            out[node] = float(graph.elements[node]) * longer
    return out


def _is_in_tiles(graph: Graph, node: int) -> bool:
    """True for a node of a kernel that XLA's tiled code generator takes and makes vector code of."""
    return any(
        graph.units[graph.default.unit[root]].kind is UnitKind.LOOP
        and is_tiled(graph, root, members := own_kernel(graph, root))
        and not holds_complex(graph, members)
        for root in roots_around(graph, graph.default.fuse, node)
    )
