"""Loops that XLA splits over cores, but that are too short for it, run on one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    split_bytes: int = limit(
        1 << 18,
        "bytes",
        "loops that move more gain from the caches of two cores whatever their work",
    )
    short_rows: float = limit(
        3.0, "times", "what broadcasts over short rows take longer than the estimate at the most"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Keeps loops on one core where splitting them costs more than it saves."""
    graph, split_ns = context.graph, context.costs.split_ns
    units = enumerate(graph.units)
    single = next((i for i, u in units if u.kind is UnitKind.LOOP and u.threads == 1), None)
    if single is None:
        return None
    wanted = context.decisions.copy()
    saved = 0.0
    for root in range(len(graph)):
        unit = graph.units[wanted.unit[root]]
        if wanted.fuse[root] or unit.kind is not UnitKind.LOOP or unit.threads < 2:
            continue
        gain = _longest_ns(context, root) * (1.0 - 1.0 / unit.threads)
        small = gain < split_ns and _moved_bytes(context, root) <= LIMITS.split_bytes
        if small and context.masks.unit[root, single]:
            wanted.unit[root] = single
            saved += (split_ns - gain) * context.executions(root)
    return context.edit(wanted, saved, "loops too short for two cores")


def _longest_ns(context: Context, root: int) -> float:
    """Nanoseconds that a kernel takes on one core at the most.

    Where rows are short and arrays are broadcast, a loop may compute an address for every element and not be
    vectorised at all.
    """
    graph, costs, fuse = context.graph, context.costs, context.decisions.fuse
    ns = context.model.cluster_ns(fuse, root)
    layout = graph.source.shapes[root].layout.minor_to_major
    row = graph.dim_lists[root][layout[0]] if layout else 1
    if row >= costs.min_row or not any(
        graph.ops[node].name == "broadcast" and graph.elements[graph.operand_lists[node][0]] > 1
        for node in context.model.members(fuse, root)
    ):
        return ns
    return ns * LIMITS.short_rows


def _moved_bytes(context: Context, root: int) -> int:
    """Bytes that a kernel reads from memory and writes there, every array counted once."""
    graph = context.graph
    inside = set(context.model.members(context.decisions.fuse, root))
    read = {operand for node in inside for operand in graph.operand_lists[node]} - inside
    return int(graph.nbytes[root]) + sum(int(graph.nbytes[operand]) for operand in read)


STEP: Final = Step(
    name="one core",
    summary="Loops that are too short to be split over cores run on one.",
    apply=apply,
    after=("one pass outputs",),
    limits=LIMITS,
)
