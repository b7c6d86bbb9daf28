"""Updates in place that read the array they change: what is written there is computed before.

``x.at[1:-1].add(f(x))`` becomes one kernel that reads and writes one buffer. LLVM cannot tell that no element
is read after it was written, and makes no vector code of it. The new values, computed into an array of their
own by vector code and copied from there, take a part of that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from graphopt.hlo.graph.layouts import row
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.in_memory import memory_ns, set_parts
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    shared_ns: float = limit(
        2.5, "nanoseconds", "what an element takes longer where a kernel reads what it writes"
    )
    min_row: int = limit(8, "elements", "shortest rows over which a loop is vectorised")


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Writes the new values of such updates to memory."""
    graph, costs, wanted = context.graph, context.costs, context.decisions.copy()
    saved = 0.0
    for root, value in _updates(context):
        trip_ns = memory_ns(costs, int(graph.nbytes[value]), 1) + costs.thunk_ns
        ns = LIMITS.shared_ns * float(graph.elements[value]) - trip_ns
        if ns > 0.0:
            wanted.fuse[value] = False
            wanted.unit[value] = context.decisions.unit[root]
            wanted.fuse[_slices_of(context, value)] = True
            work = context.model.cluster_ns(wanted.fuse, value)
            set_parts(context, wanted, value, work / float(graph.elements[value]))
            saved += ns * context.executions(root)
    return context.edit(wanted, saved, "new values computed before they are written in place")


def _slices_of(context: Context, value: int) -> list[int]:
    """Slices that the kernel of a value alone reads, and that it may take in.

    XLA copies them apart, as an update in place must not read what it has written.
    """
    graph, fuse = context.graph, context.decisions.fuse
    members = set(context.model.members(fuse, value))
    read = {operand for node in members for operand in graph.operand_lists[node]} - members
    return [
        node
        for node in sorted(read)
        if graph.ops[node].name == "slice"
        and context.masks.fuse[node, 1]
        and members.issuperset(graph.user_lists[node])
    ]


def _updates(context: Context) -> Iterator[tuple[int, int]]:
    """Roots of kernels that update in place what they read elsewhere, too; and the values they write."""
    graph, decisions = context.graph, context.decisions
    for root, op in enumerate(graph.ops):
        if op.name != "dynamic-update-slice" or decisions.fuse[root] or decisions.join[root]:
            continue
        unit = int(decisions.unit[root])
        buffer, value = graph.operand_lists[root][:2]
        legal = context.masks.fuse[value, 0] and context.masks.unit[value, unit]
        if not decisions.fuse[value] or decisions.fuse[buffer] or not legal:
            continue
        if graph.units[unit].kind is not UnitKind.LOOP or context.is_inside_native(root):
            continue
        length = row(graph, value)
        if length < LIMITS.min_row or length == row(graph, buffer):
            continue  # rows as a whole: LLVM sees where they begin
        members = context.model.members(decisions.fuse, root)
        if any(graph.ops[n].name == "slice" and buffer in graph.operand_lists[n] for n in members):
            yield root, value


STEP: Final = Step(
    name="updates",
    summary="New values of an update in place that reads what it changes are computed before.",
    apply=apply,
    after=("native loops", "small runs"),
    min_saved_ns=1000.0,
    min_saved_share=0.05,
    limits=LIMITS,
)
