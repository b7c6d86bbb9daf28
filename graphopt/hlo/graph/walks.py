"""Walks over a graph that several layers need: what a kernel holds, which kernels hold a node."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.graph import Graph


def first_parameter(graph: Graph, index: int) -> int | None:
    """The first parameter of a computation of the graph, -1 for the entry; None for one without any."""
    computation = graph.computations[index]
    nodes = range(computation.first, computation.end)
    return next((node for node in nodes if graph.ops[node].name == "parameter"), None)


def window_size(graph: Graph, node: int) -> int:
    """Elements that a reduce-window reads for one element of its result."""
    window = graph.source.protos[node].window
    return math.prod(max(1, dimension.size) for dimension in window.dimensions)


def fused_into(graph: Graph, fuse: Sequence[bool] | NDArray[np.bool_], root: int) -> list[int]:
    """A root and all nodes that are computed in its kernel.

    Args:
        graph: of the root.
        fuse: [N]; True where a node is computed inside its users.
        root: a node in memory.
    """
    found, seen = [root], {root}
    for node in found:
        for operand in graph.operand_lists[node]:
            if operand not in seen and fuse[operand]:
                seen.add(operand)
                found.append(operand)
    return found


def inputs_of(graph: Graph, members: Collection[int]) -> list[int]:
    """What a kernel reads from memory, each once.

    Args:
        graph: of the kernel.
        members: all its nodes.
    """
    inside = set(members)
    read = (operand for node in members for operand in graph.operand_lists[node])
    return [operand for operand in dict.fromkeys(read) if operand not in inside]


@per_graph
def _own_kernels(graph: Graph) -> dict[int, frozenset[int]]:
    """Root -> nodes of its kernel by XLA's decisions, as far as somebody asked."""
    return {}


def own_kernel(graph: Graph, root: int) -> frozenset[int]:
    """The nodes of a kernel by XLA's own decisions.

    Args:
        graph: of the root.
        root: a node that XLA writes to memory.
    """
    known = _own_kernels(graph)
    found = known.get(root)
    if found is None:
        found = known[root] = frozenset(fused_into(graph, graph.default_fuse, root))
    return found


def roots_around(graph: Graph, fuse: NDArray[np.bool_], node: int) -> list[int]:
    """Roots of the kernels that a node is computed in; the node itself if it is in memory.

    Args:
        graph: of the node.
        fuse: bool [N]; True where a node is computed inside its users.
        node: any node.
    """
    found, seen = [node], {node}
    for inner in found:
        if fuse[inner]:
            new = [user for user in graph.user_lists[inner] if user not in seen]
            seen.update(new)
            found += new
    return [root for root in found if not fuse[root]]
