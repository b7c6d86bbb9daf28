"""Normalisations (reduce, then elementwise of the same rows) go to the kernel library as one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.layouts import innermost
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    min_elements: int = limit(1 << 15, "elements", "smallest result that the library is called for")
    reductions: int = limit(
        2, "reductions", "of one normalisation: mean and variance, maximum and sum"
    )
    max_members: int = limit(24, "nodes", "largest normalisation")
    max_closure: int = limit(64, "nodes", "fused users followed to find where a value ends up")


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Hands a reduction and the elementwise code around it to the library as one call."""
    graph = context.graph
    library = unit_index(graph.units, UnitKind.LIBRARY)
    wanted = context.decisions.copy()
    saved = 0.0
    for root in range(len(graph) - 1, -1, -1):
        if not _may_be_root(context, wanted, root, library):
            continue
        members = _library_closure(context, wanted, root)
        if members is None:
            continue
        wanted.unit[root] = library
        for member in members - {root}:
            if not wanted.fuse[member]:  # it is no longer written and read again
                trip = 2.0 * float(graph.nbytes[member]) / context.costs.bytes_per_ns
                saved += trip * context.executions(root)
            wanted.fuse[member] = True
    return context.edit(wanted, saved, "normalisations as one library call each")


def _may_be_root(context: Context, wanted: Decisions, root: int, library: int) -> bool:
    graph = context.graph
    return bool(
        not wanted.fuse[root]
        and graph.library_nodes[1][root]
        and graph.ops[root].name != "dot"
        and graph.elements[root] >= LIMITS.min_elements
        and context.masks.unit[root, library]
        and not context.is_inside_native(root)
    )


def _library_closure(context: Context, decisions: Decisions, root: int) -> set[int] | None:
    """Nodes that one library call would compute: fused ones, and roots that only they use.

    None if nothing is gained: it is not the two reductions of one normalisation over rows (mean and variance,
    maximum and sum), of which one is written to memory now. With one there is too little to save; chains of
    normalisations, and those over columns, are slow as one call.
    """
    graph, may_fuse = context.graph, context.masks.fuse
    inside_ok = graph.library_nodes[0]
    members = {root}
    stack = [root]
    reductions = written = 0
    while stack:
        node = stack.pop()
        for operand in graph.operand_lists[node]:
            if operand in members or graph.ops[operand].name == "constant":
                continue
            if decisions.fuse[operand]:
                if not inside_ok[operand]:
                    return None
            elif not (
                inside_ok[operand]
                and may_fuse[operand, 1]
                and graph.ops[operand].name != "dot"
                and _within(graph, decisions, operand, members)
            ):
                continue
            else:
                written += graph.ops[operand].name == "reduce"
            if graph.ops[operand].name == "reduce":
                reductions += 1
                if not _reduces_rows(graph, operand):
                    return None
            members.add(operand)
            stack.append(operand)
    usual = reductions == LIMITS.reductions and len(members) <= LIMITS.max_members
    return members if written and usual else None


def _reduces_rows(graph: Graph, node: int) -> bool:
    """True if a reduction is over the dimension that lies together in memory, and no other."""
    proto = graph.source.protos[node]
    return list(proto.dimensions) == [innermost(graph, graph.operand_lists[node][0])]


def _within(graph: Graph, decisions: Decisions, value: int, members: set[int]) -> bool:
    """True if a value's users are all members, or fused only into members."""
    stack, seen = [value], {value}
    while stack:
        for user in graph.user_lists[stack.pop()]:
            if user in members or user in seen:
                continue
            if not decisions.fuse[user] or len(seen) > LIMITS.max_closure:
                return False
            seen.add(user)
            stack.append(user)
    return True


STEP: Final = Step(
    name="library normalisations",
    summary="Normalisations over rows go to the kernel library as one call.",
    apply=apply,
    after=("keep in memory",),
    limits=LIMITS,
)
