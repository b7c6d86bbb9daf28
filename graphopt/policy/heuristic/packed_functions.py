"""Functions of scalars and small arrays in native code, computed together where that is faster.

See `graphopt.hlo.restructure.rows.pack`: LLVM unrolls short loops into scalar code, and a packed array is
computed in vector code.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.graph import Computation
from graphopt.hlo.graph.walks import roots_around
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.pack import VECTOR, packed_length
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import instructions
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    min_saved_share: float = limit(
        0.03, "of a computation", "of its time, run once, that its packed functions must save"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Packs the functions of every computation in native code where it gains."""
    graph = context.graph
    legal = context.masks.restructure[:, CODE["pack"]]
    if not legal.any():
        return None
    wanted = context.decisions.copy()
    saved = 0.0
    for index, computation in enumerate(graph.computations):
        nodes = np.flatnonzero(legal[computation.first : computation.end]) + computation.first
        now = context.after(wanted)
        found = [
            node
            for node in nodes.tolist()
            if not wanted.restructure[node]
            and _is_scalar_code(now, node, index in context.inside_native)
        ]
        if found:
            saved += _pack(context, wanted, index, found)
    return context.edit(wanted, saved, "functions of small arrays computed together")


def _pack(context: Context, wanted: Decisions, index: int, found: list[int]) -> float:
    """Packs what gains in one computation; nanoseconds that it saves per run of the program."""
    graph = context.graph
    saved = 0.0
    chosen: list[int] = []
    for members in _groups(graph, graph.computations[index], found):
        gain = _saved_ns(context, members)
        if gain > 0.0:
            saved += gain
            chosen += members
    if saved <= LIMITS.min_saved_share * context.model.computations[index].native_ns():
        return 0.0
    wanted.restructure[chosen] = CODE["pack"]
    for value in {value for node in chosen for value in (node, *graph.operand_lists[node])}:
        if graph.masks.fuse[value, 0] and wanted.fuse[value]:
            wanted.fuse[value] = False
            if index not in context.inside_native and graph.masks.unit[value, context.native]:
                wanted.unit[value] = context.native  # as its users, else a kernel in between
    return saved * context.executions(graph.computations[index].first)


def _groups(graph: Graph, computation: Computation, found: list[int]) -> list[list[int]]:
    """Functions of one kind that do not depend on one another."""
    members = set(found)
    level: dict[int, int] = {}
    groups: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    for node in range(computation.first, computation.end):
        before = [o for o in graph.operand_lists[node] if o in level]
        level[node] = max((level[o] + (o in members) for o in before), default=0)
        if node in members:
            dtype = graph.source.shapes[node].element_type
            groups[level[node], graph.ops[node].name, dtype].append(node)
    return list(groups.values())


def _saved_ns(context: Context, members: list[int]) -> float:
    """Nanoseconds that packing saves; less than 0 where it takes longer."""
    graph, costs = context.graph, context.costs
    name, dtype = graph.ops[members[0]].name, DType(graph.source.shapes[members[0]].element_type)
    short, vector = costs.short_functions[name][dtype.name.lower()]
    sizes = [int(graph.elements[member]) for member in members]
    packed = packed_length(name, dtype, sizes)
    scalar = packed % VECTOR[dtype]
    overhead = len(members) * costs.member_ns + costs.pack_ns
    if packed > sizes[0] and len(members) == 1:
        overhead += costs.filled_ns
    return (sum(sizes) - scalar) * short - (packed - scalar) * vector - overhead


def _is_scalar_code(context: Context, node: int, inside: bool) -> bool:
    """True for a function in native code whose loops LLVM unrolls in full."""
    graph, decisions, costs = context.graph, context.decisions, context.costs
    dims = [n for n in graph.dim_lists[node] if n > 1]
    row = dims[-1] if dims else 1
    if 1 < row <= costs.interleaved_row and graph.elements[node] >= costs.interleaved_rows * row:
        return False
    for root in roots_around(graph, decisions.fuse, node):
        if not inside and decisions.unit[root] != context.native:
            return False
        if row * instructions(context, root) > costs.unrolled_instructions:
            return False
    return True


STEP: Final = Step(
    name="packed functions",
    summary="Functions of scalars and small arrays in native code are computed together.",
    apply=apply,
    after=("native loops", "small runs", "keep in memory"),
    limits=LIMITS,
)
