"""Reshaped views of arrays in memory, as native code had better read them.

XLA's native functions compute the indices in the array behind a fused bitcast by divisions, for every element
that is read. A bitcast that stands by itself is a name for the same memory and costs nothing.
"""

from __future__ import annotations

import numpy as np

from graphopt.hlo import Decisions, Graph
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.costs import CostModel
from graphopt.policy.native import inside_native


def stand_alone(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Takes reshapes of arrays in memory out of native kernels; changes `decisions`."""
    bitcasts = [
        node
        for node in np.flatnonzero(decisions.fuse & graph.masks.fuse[:, 0]).tolist()
        if graph.ops[node].name == "bitcast" and _reshapes(graph, node)
    ]
    if not bitcasts:
        return
    native = _native_nodes(graph, model, decisions)
    for node in bitcasts:
        if native[node] and not decisions.fuse[graph.operand_lists[node][0]]:
            decisions.fuse[node] = False


def _native_nodes(graph: Graph, model: CostModel, decisions: Decisions) -> list[bool]:
    """Per node: a kernel in native code computes it."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    inside = inside_native(graph, model, decisions)
    native = [False] * len(graph)
    for node in range(len(graph) - 1, -1, -1):
        if int(graph.computation[node]) in inside:
            native[node] = True
        elif decisions.fuse[node]:
            native[node] = any(native[user] for user in graph.user_lists[node])
        else:
            native[node] = bool(decisions.unit[node] == unit) and node not in model.callees
    return native


def _reshapes(graph: Graph, node: int) -> bool:
    """True if dimensions differ from the operand's, in the order of memory and without those of size 1."""
    return _extents(graph, node) != _extents(graph, graph.operand_lists[node][0])


def _extents(graph: Graph, node: int) -> list[int]:
    sizes = graph.dim_lists[node]
    order = graph.source.shapes[node].layout.minor_to_major
    return [sizes[dimension] for dimension in order if sizes[dimension] != 1]
