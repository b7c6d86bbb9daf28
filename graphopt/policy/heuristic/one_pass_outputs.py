"""Outputs of one shape that read the same large arrays are computed in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    What large outputs all read no longer waits in a core's cache for the next of them, while smaller ones
    can be computed on two cores at once. Kernels that compute long gain nothing from being joined, and a
    long loop with more outputs has fewer registers.
    """

    large_bytes: int = limit(1 << 18, "bytes", "smallest output that is joined")
    joined_bytes: int = limit(1 << 20, "bytes", "least that outputs joined together have")
    max_work: float = limit(
        10.0, "ratio", "kernels that compute so many times longer than they write stay"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Joins large outputs of one shape that read a common large array."""
    graph = context.graph
    readers: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for root in range(len(graph)):
        if not _may_be_joined(context, root):
            continue
        for operand in _elementwise_inputs(graph, context.decisions, root):
            if graph.nbytes[operand] >= graph.nbytes[root]:
                readers.setdefault((operand, tuple(graph.dim_lists[root])), []).append(root)
    wanted = context.decisions.copy()
    saved = 0.0
    for (operand, _), roots in readers.items():
        if len(roots) > 1 and sum(graph.nbytes[root] for root in roots) >= LIMITS.joined_bytes:
            wanted.join[roots[1:]] = True
            passes = (len(roots) - 1) * context.executions(roots[0])
            saved += float(graph.nbytes[operand]) / context.costs.bytes_per_ns * passes
    return context.edit(wanted, saved, "outputs that read the same large arrays in one pass")


def _may_be_joined(context: Context, root: int) -> bool:
    graph, decisions = context.graph, context.decisions
    return bool(
        not decisions.fuse[root]
        and graph.nbytes[root] >= LIMITS.large_bytes
        and graph.units[decisions.unit[root]].kind is UnitKind.LOOP
        and context.masks.join[root, 1]
        and not context.is_inside_native(root)
        and not _computes_long(context, root)
    )


def _computes_long(context: Context, root: int) -> bool:
    written_ns = float(context.graph.nbytes[root]) / context.costs.bytes_per_ns
    return context.model.cluster_ns(context.decisions.fuse, root) > LIMITS.max_work * written_ns


def _elementwise_inputs(graph: Graph, decisions: Decisions, root: int) -> set[int]:
    """Values in memory that a cluster reads at its own index; empty if it has other large reads."""
    seen, stack, inputs = {root}, [root], set()
    while stack:
        node = stack.pop()
        if graph.ops[node].kind is not OpKind.ELEMENTWISE:
            continue
        for operand in graph.operand_lists[node]:
            if operand in seen:
                continue
            seen.add(operand)
            if decisions.fuse[operand]:
                stack.append(operand)
            else:
                inputs.add(operand)
    return inputs


STEP: Final = Step(
    name="one pass outputs",
    summary="Outputs of one shape that read the same large arrays are computed in one pass.",
    apply=apply,
    after=("library normalisations",),
    limits=LIMITS,
)
