"""Which concatenations in native loops are computed where they are used, and which are written to memory."""

from __future__ import annotations

from typing import Final

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.walks import roots_around
from graphopt.hlo.module.opcodes import OpKind

MIN_CONCATENATED: Final = 512
"""Smallest concatenation in a native loop that is decided by itself."""

MAX_CHOICES: Final = 2
"""Concatenations one inside the other: each doubles the ways on which an element may be found."""

MIN_READER_NS: Final = 1.2
"""What one element of a kernel must take that reads a concatenation from memory: cheap arithmetic is not
worth another trip."""


def is_choice_of_loads(graph: Graph, decisions: Decisions, node: int) -> bool:
    """True for concatenations of parts of arrays in memory, such as a roll.

    Which part an element is of decides an address there and nothing else: the code around it vectorises.

    Args:
        graph: of the program.
        decisions: all of the nodes before this one.
        node: in a native loop.
    """
    if graph.ops[node].name != "concatenate" or graph.elements[node] < MIN_CONCATENATED:
        return False
    if not graph.masks.fuse[node, 1]:
        return False
    users = [graph.ops[user] for user in graph.user_lists[node]]
    return all(
        op.kind is OpKind.ELEMENTWISE or op.name in ("slice", "concatenate") for op in users
    ) and _reads_memory(graph, decisions, node, MAX_CHOICES)


def _reads_memory(graph: Graph, decisions: Decisions, node: int, choices: int) -> bool:
    """True if a concatenation reads arrays in memory, others of at most so many below it included."""
    for operand in graph.operand_lists[node]:
        while decisions.fuse[operand] and graph.ops[operand].name in ("slice", "bitcast"):
            operand = graph.operand_lists[operand][0]
        if not decisions.fuse[operand]:
            continue
        inner = graph.ops[operand].name == "concatenate" and choices > 1
        if not (inner and _reads_memory(graph, decisions, operand, choices - 1)):
            return False
    return True


def is_slow_fused(graph: Graph, model: CostModel, node: int) -> bool:
    """True for concatenations of computed rows that native code had better write to memory.

    Fused, they ask for every element which part it is of and compute the parts in branches: the arithmetic
    around them does not vectorise. That matters where there is much of it.

    Args:
        graph: of the program.
        model: its costs.
        node: in a native loop, not `is_choice_of_loads`.
    """
    if graph.ops[node].name != "concatenate" or graph.elements[node] < MIN_CONCATENATED:
        return False
    if not graph.masks.fuse[node, 0]:
        return False
    if not any(graph.ops[user].kind is OpKind.ELEMENTWISE for user in graph.user_lists[node]):
        return False
    layout = graph.source.shapes[node].layout.minor_to_major
    (dimension,) = graph.source.protos[node].dimensions
    if len(layout) < 2 or dimension != layout[0]:
        return False
    fuse = graph.default.fuse
    return any(
        model.cluster_ns(fuse, root) >= MIN_READER_NS * float(graph.elements[root])
        for root in roots_around(graph, fuse, node)
    )
