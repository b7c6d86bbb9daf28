"""Updates in place that read the array they change: what is written there is computed before.

``x.at[1:-1].add(f(x))`` becomes one kernel that reads and writes one buffer. LLVM cannot tell that no element
is read after it was written, and makes no vector code of it. And what the kernel would read elsewhere in the
buffer, the neighbours of a stencil, XLA copies into arrays of their own. The new values, computed into an
array of their own by vector code that reads the neighbours where they are, and copied from there, take a part
of that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from graphopt.hlo import Decisions
from graphopt.hlo.graph.layouts import row
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.in_memory import GENERATED, memory_ns, set_parts
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
    wanted = context.decisions.copy()
    saved = 0.0
    for update in _updates(context):
        ns = _saved_ns(context, update)
        if ns > 0.0:
            _compute_before(context, wanted, update)
            saved += ns * context.executions(update.root)
    return context.edit(wanted, saved, "new values computed before they are written in place")


@dataclass(frozen=True)
class _Update:
    """A kernel that updates an array in place.

    Attributes:
        root: its last node.
        value: what it writes.
        is_shared: it reads parts of the array that it writes, rows of which are no rows of the array.
        slices: in memory, read by nothing but the kernel of `value`, which may take them in.
    """

    root: int
    value: int
    is_shared: bool
    slices: tuple[int, ...]


def _saved_ns(context: Context, update: _Update) -> float:
    """Nanoseconds that one execution saves: what is vector code, and the trips of slices through memory."""
    graph, costs = context.graph, context.costs
    native = context.is_inside_native(update.root)
    start_ns = costs.native_kernel_ns if native else costs.thunk_ns

    def trip_ns(node: int) -> float:
        return memory_ns(costs, int(graph.nbytes[node]), 1) + start_ns

    saved = sum(trip_ns(node) for node in update.slices) - trip_ns(update.value)
    if update.is_shared:
        saved += LIMITS.shared_ns * float(graph.elements[update.value])
    return saved


def _compute_before(context: Context, wanted: Decisions, update: _Update) -> None:
    value = update.value
    wanted.fuse[value] = False
    wanted.unit[value] = context.decisions.unit[update.root]
    wanted.fuse[list(update.slices)] = True
    if context.is_inside_native(update.root):
        return
    work = context.model.cluster_ns(wanted.fuse, value)
    set_parts(context, wanted, value, work / float(context.graph.elements[value]))


def _updates(context: Context) -> Iterator[_Update]:
    """Updates in place whose new values may be computed before, and of which that takes something away."""
    graph, decisions = context.graph, context.decisions
    for root, op in enumerate(graph.ops):
        if op.name != "dynamic-update-slice" or decisions.fuse[root] or decisions.join[root]:
            continue
        unit = int(decisions.unit[root])
        buffer, value = graph.operand_lists[root][:2]
        legal = context.masks.fuse[value, 0] and context.masks.unit[value, unit]
        if not decisions.fuse[value] or decisions.fuse[buffer] or not legal:
            continue
        if graph.units[unit].kind not in GENERATED or row(graph, value) < LIMITS.min_row:
            continue
        update = _Update(root, value, _is_shared(context, root), _slices_of(context, value))
        if update.is_shared or update.slices:
            yield update


def _is_shared(context: Context, root: int) -> bool:
    """True if the kernel reads what it writes, which its code is slower for.

    Not for rows as a whole: LLVM sees where they begin. And not in native loops, whose code is no better
    where nothing is shared.
    """
    graph = context.graph
    buffer, value = graph.operand_lists[root][:2]
    return (
        not context.is_inside_native(root)
        and row(graph, value) != row(graph, buffer)
        and any(
            graph.ops[node].name == "slice" and buffer in graph.operand_lists[node]
            for node in context.model.members(context.decisions.fuse, root)
        )
    )


def _slices_of(context: Context, value: int) -> tuple[int, ...]:
    """Slices that the kernel of a value alone reads, and that it may take in.

    XLA copies them apart, as an update in place must not read what it has written.
    """
    graph, fuse = context.graph, context.decisions.fuse
    members = set(context.model.members(fuse, value))
    read = {operand for node in members for operand in graph.operand_lists[node]} - members
    return tuple(
        node
        for node in sorted(read)
        if graph.ops[node].name == "slice"
        and context.masks.fuse[node, 1]
        and members.issuperset(graph.user_lists[node])
    )


STEP: Final = Step(
    name="updates",
    summary="New values of an update in place that reads what it changes are computed before.",
    apply=apply,
    after=("native loops", "small runs"),
    min_saved_ns=1000.0,
    min_saved_share=0.05,
    limits=LIMITS,
)
