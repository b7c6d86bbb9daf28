"""Kernels that hardly count in the time of a program, which native code compiles sooner.

XLA sends every loop kernel through MLIR and a module of LLVM of its own: some 11 ms of processor time for
the smallest. As loops of one native function four to sixteen of them take 0.7 to 0.8 of that
(``python -m benchmarks.compile_times kernels``); more gain nothing, nor do functions such as exp, as the
time of a function grows faster than its length. Equal kernels XLA compiles once, so those stay. What the
others compute takes a little longer or shorter in native code, which is nothing where all of them together
are a small part of the program.

A function begins when all that its kernels read is there, and what reads one of them waits for all. Where
XLA runs a good part of a program's kernels beside each other, only those are taken that read nothing but
arguments.

A program that no other step changes is left alone: writing it again takes as long as this saves. So are
bodies of loops, where the order of kernels that run often counts for more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.costs.compiling import kernel_kind
from graphopt.costs.opaque import is_wall
from graphopt.hlo.graph.walks import inputs_of
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import is_root, program_ns
from graphopt.policy.heuristic.support.sequences import sequence_of
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step."""

    max_kernel_ns: float = limit(
        5_000.0, "ns", "longest kernel on one core; longer ones gain from vectors and cores"
    )
    max_share: float = limit(
        0.01, "of the program", "what all of them together may take: at most that is at stake"
    )
    min_kernels: int = limit(3, "kernels", "fewer are not worth a native function of their own")
    max_kernels: int = limit(16, "kernels", "more would compile no sooner than one by one")
    max_beside: float = limit(
        0.05,
        "of the program",
        "what is ready at once with a longer kernel; else none of these may wait",
    )


LIMITS: Final = Limits()

_THERE: Final = frozenset({"parameter", "constant"})
"""What is there when the program begins."""


def apply(context: Context) -> Edit | None:
    """Makes the shortest loop kernels native, as many as together are a small part of the program."""
    if context.decisions.same_as(context.graph.default):
        return None
    timed = sorted(_candidates(context))
    if len(timed) >= LIMITS.min_kernels and not _may_wait(context):
        timed = [(ns, node) for ns, node in timed if _is_ready(context, node)]
    total = np.cumsum([ns for ns, _ in timed])
    count = int(np.searchsorted(total, LIMITS.max_share * program_ns(context), side="right"))
    chosen = [node for _, node in timed[: min(count, LIMITS.max_kernels)]]
    if len(chosen) < LIMITS.min_kernels:
        return None
    wanted = context.decisions.copy()
    wanted.unit[chosen] = context.native
    return context.edit(wanted, 0.0, f"{len(chosen)} kernels of next to no time compile sooner")


def _may_wait(context: Context) -> bool:
    """True unless XLA runs a good part of the program's kernels beside each other."""
    sequence = sequence_of(context, -1)
    return sequence.wide_ns <= LIMITS.max_beside * sequence.total_ns


def _candidates(context: Context) -> list[tuple[float, int]]:
    """Nanoseconds and roots of short loop kernels of XLA's that run once, and may become native."""
    graph, decisions, model = context.graph, context.decisions, context.model
    loops = [index for index, unit in enumerate(graph.units) if unit.kind is UnitKind.LOOP]
    roots = (
        ~decisions.fuse
        & ~context.in_native
        & np.isin(decisions.unit, loops)
        & (decisions.unit == graph.default.unit)
        & (decisions.restructure == 0)
        & (graph.executions <= 1)
        & context.masks.unit[:, context.native]
    )
    joined = {tuple(graph.dim_lists[node]) for node in np.flatnonzero(decisions.join).tolist()}
    kinds = defaultdict(list)
    for node in np.flatnonzero(roots).tolist():
        if tuple(graph.dim_lists[node]) in joined:
            continue  # it may be the kernel of several outputs
        if is_root(context, node) and not is_wall(graph, node):
            members = model.members(decisions.fuse, node)
            kinds[kernel_kind(graph, members)].append((node, members))
    others = frozenset({"dot", "copy", *context.costs.function_ns})
    single = [kernels[0] for kernels in kinds.values() if len(kernels) == 1]
    plain = [node for node, members in single if _is_plain(context, members, others)]
    timed = ((model.cluster_ns(decisions.fuse, node), node) for node in plain)
    return [(ns, node) for ns, node in timed if ns < LIMITS.max_kernel_ns]


def _is_plain(context: Context, members: Sequence[int], others: frozenset[str]) -> bool:
    """True for a kernel that XLA would emit as a loop without windows and operations of those names."""
    graph = context.graph
    return not any(
        graph.ops[node].kind is OpKind.CONTROL
        or graph.ops[node].name in others
        or node in context.model.windows
        for node in members
    )


def _is_ready(context: Context, root: int) -> bool:
    """True for a kernel that waits for no other: it reads arguments and constants."""
    graph = context.graph
    for node in inputs_of(graph, context.model.members(context.decisions.fuse, root)):
        while graph.ops[node].name == "bitcast":
            node = graph.operand_lists[node][0]
        if graph.ops[node].name not in _THERE:
            return False
    return True


STEP: Final = Step(
    name="little kernels",
    summary="Kernels that together take next to no time become native code, which compiles sooner.",
    apply=apply,
    after=("small runs", "keep in memory", "one pass outputs", "one core", "short reductions"),
    limits=LIMITS,
)
