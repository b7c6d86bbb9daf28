"""Loops that XLA splits over cores, but that are too short for it, or slower in parts, run on one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from graphopt.costs.elements import FLOATS
from graphopt.hlo.graph.layouts import divides, is_guarded, row
from graphopt.hlo.graph.tiled import is_tiled
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import DTYPE_BYTES, DType
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    Where kernels before and after use both cores, each finds its half of an array in its own cache, and a
    loop on one core fetches the other half. A program of nothing but short loops has no such halves.
    """

    split_bytes: int = limit(
        1 << 18,
        "bytes",
        "loops that move more, among kernels of two cores, gain from both caches whatever their work",
    )
    cached: float = limit(
        2.0, "times the largest cached array", "what short loops may move in a program of their own"
    )
    guarded_ns: float = limit(
        2.5,
        "nanoseconds",
        "what an element takes longer where its loop tests whether it is inside (`is_guarded`)",
    )
    short_rows: float = limit(
        3.0, "times", "what broadcasts over short rows take longer than the estimate at the most"
    )


LIMITS: Final = Limits()

_VECTORS: Final = FLOATS - {DType.F16, DType.BF16, DType.C64, DType.C128}
"""Floating-point types whose operations are single vector instructions; all whole numbers are."""

_VIEWS: Final = frozenset({"broadcast", "slice", "concatenate", "pad", "reshape", "iota"})
"""Operations that vector code reads through where rows are long."""

_IDLE: Final = frozenset({"after-all", "add-dependency"})
"""Operations of the runtime that compute nothing."""


@dataclass(frozen=True)
class Split:
    """A loop that is split over cores.

    Attributes:
        root: its node.
        gain_ns: nanoseconds that splitting saves at the most, its own cost not counted.
        moved: bytes that it reads and writes.
        guarded: its parts are no vector code, the whole is.
    """

    root: int
    gain_ns: float
    moved: int
    guarded: bool


def apply(context: Context) -> Edit | None:
    """Keeps loops on one core where splitting them costs more than it saves."""
    units = enumerate(context.graph.units)
    single = next((i for i, u in units if u.kind is UnitKind.LOOP and u.threads == 1), None)
    if single is None:
        return None
    splits, costs = list(_splits(context)), context.costs
    short = [split for split in splits if split.gain_ns < costs.split_ns]
    among_others = len(short) < len(splits) or _uses_cores(context)
    most = LIMITS.split_bytes if among_others else LIMITS.cached * costs.cached_bytes
    wanted = context.decisions.copy()
    saved = 0.0
    for split in short:
        if (split.guarded or split.moved <= most) and context.masks.unit[split.root, single]:
            wanted.unit[split.root] = single
            saved += (costs.split_ns - split.gain_ns) * context.executions(split.root)
    return context.edit(wanted, saved, "loops too short for two cores, or without equal parts")


def _splits(context: Context) -> Iterator[Split]:
    """All loops that are split as decided so far."""
    graph, decisions = context.graph, context.decisions
    for root in range(len(graph)):
        unit = graph.units[decisions.unit[root]]
        if not decisions.fuse[root] and unit.kind is UnitKind.LOOP and unit.threads > 1:
            moved = _moved_bytes(context, root)
            ns = min(_longest_ns(context, root), _vector_ns(context, root, moved))
            gain_ns, guarded = ns * (1.0 - 1.0 / unit.threads), _is_guarded(context, root)
            if guarded:
                gain_ns -= LIMITS.guarded_ns * float(graph.elements[root]) / unit.threads
            yield Split(root, gain_ns, moved, guarded)


def _is_guarded(context: Context, root: int) -> bool:
    """True for a split loop that is no vector code in its parts; what the tiled generator takes is."""
    graph, decisions = context.graph, context.decisions
    members = context.model.members(decisions.fuse, root)
    guarded = is_guarded(graph, root, members, int(decisions.unit[root]))
    return guarded and not is_tiled(graph, root, members)


def _uses_cores(context: Context) -> bool:
    """True for a program with calls of the library or the runtime, which may use several cores."""
    graph, decisions = context.graph, context.decisions
    return any(
        graph.units[decisions.unit[node]].kind is UnitKind.LIBRARY
        or (op.kind is OpKind.RUNTIME and op.name not in _IDLE)
        for node, op in enumerate(graph.ops)
        if not decisions.fuse[node]
    )


def _vector_ns(context: Context, root: int, moved: int) -> float:
    """Nanoseconds on one core of a kernel of vector code over cached arrays; infinite for others.

    The first operations hide behind the loads, and what all elements share is loaded once.
    """
    graph, model, costs = context.graph, context.model, context.costs
    simple, others = 0.0, 0.0
    for node in model.members(context.decisions.fuse, root):
        kind = _kind(context, node)
        if kind is None:
            return math.inf
        if kind == "simple" and model.work[node]:
            times = model.evaluated_ns(node) / model.work[node]
            words = max(1.0, DTYPE_BYTES.get(int(graph.dtype[node]), 4) / 4)
            simple += float(graph.elements[node]) * times * words
        elif kind == "other":
            others += model.evaluated_ns(node)
    hidden = costs.hidden_operations * float(graph.elements[root])
    ns = max(0.0, simple - hidden) / costs.fused_operations_per_ns + others
    return max(ns, moved / costs.cached_bytes_per_ns)


def _kind(context: Context, node: int) -> str | None:
    """What a node costs in a loop of vector code: "free", "simple", "other"; None: it is none."""
    graph, costs = context.graph, context.costs
    op, dtype = graph.ops[node], int(graph.dtype[node])
    if op.name in {"constant", "bitcast"}:
        return None if divides(graph, node) else "free"
    if op.name == "broadcast" and graph.elements[graph.operand_lists[node][0]] <= 1:
        return "free"
    if dtype in FLOATS and dtype not in _VECTORS:
        return None
    if op.name in _VIEWS:
        return "other" if row(graph, node) >= costs.min_row else None
    if op.kind is not OpKind.ELEMENTWISE:
        return None
    slow = op.cost > 1.0 or (dtype not in FLOATS and op.name in costs.integer_ns)
    return "other" if slow else "simple"


def _longest_ns(context: Context, root: int) -> float:
    """Nanoseconds that a kernel takes on one core at the most.

    Where rows are short and arrays are broadcast, a loop may compute an address for every element and not be
    vectorised at all.
    """
    graph, costs, fuse = context.graph, context.costs, context.decisions.fuse
    ns = context.model.cluster_ns(fuse, root)
    if row(graph, root) >= costs.min_row or not any(
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
    summary="Loops that are too short to be split over cores, or whose parts are not equal, run on one.",
    apply=apply,
    after=("one pass outputs",),
    limits=LIMITS,
)
