"""Computations of many short kernels, which one thread runs in order sooner than several share them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.hlo.graph.walks import first_parameter
from graphopt.hlo.module.index import Role
from graphopt.hlo.restructure import CODE, ON_CALLER, dispatch_code
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.sequences import Sequence, is_gone, sequence_of
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    In order, no kernel runs beside another: kernels on several cores no longer overlap with others, and what
    XLA would hand to a worker is not done at the same time.
    """

    max_gain_ns: float = limit(
        250_000.0, "ns", "what further threads might save beside the longest kernel, as estimated"
    )
    workers: int = limit(
        4, "threads", "most that XLA hands a computation's kernels to (``kMaxWorkers`` of thunk.h)"
    )
    max_overlap: float = limit(
        0.1,
        "of all beside the longest kernel",
        "what kernels on several cores may take at the most",
    )
    max_handed_out: float = limit(
        0.35, "of all beside it", "the same where XLA hands kernels out, which costs more"
    )
    max_wide: float = limit(
        0.7,
        "of a computation",
        "kernels that are ready at once may take no more, beside the longest",
    )
    min_wide_ns: float = limit(150_000.0, "ns", "but for less, which is over before a worker wakes")
    min_wide_loop_ns: float = limit(
        20_000.0, "ns", "the same in loops, whose workers stay awake between iterations"
    )
    hand_outs: float = limit(
        1.0,
        "hand-overs",
        "what handing out costs wherever XLA does so, waiting for workers included",
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Runs the kernels of computations in order where handing them out costs more than it gains."""
    graph, masks = context.graph, context.masks.restructure
    wanted = context.decisions.copy()
    saved = 0.0
    for index in range(len(graph.computations)):
        node = first_parameter(graph, index)
        if node is None or not masks[node, CODE["sequential"]] or is_gone(context, index):
            continue
        gain = _saved_ns(context, index)
        if gain > 0.0:
            on_caller = bool(ON_CALLER[wanted.restructure[node]])
            wanted.restructure[node] = dispatch_code(on_caller, in_order=True)
            saved += gain * context.executions(node)
    return context.edit(wanted, saved, "short kernels, in order on one thread")


def _saved_ns(context: Context, index: int) -> float:
    """Nanoseconds per execution of a computation that running its kernels in order saves; 0 if none."""
    sequence, costs = sequence_of(context, index), context.costs
    in_loop = context.graph.computations[index].role is Role.LOOP_BODY
    if sequence.is_in_order or _is_wide(sequence, in_loop):
        return 0.0
    if not _is_best_in_order(context, sequence):
        return 0.0
    saved = sequence.kernels * (costs.thunk_ns - costs.short_thunk_ns)
    if in_loop:
        saved += costs.loop_ns - costs.short_loop_ns
    if sequence.is_handed_out:
        saved += LIMITS.hand_outs * costs.handover_ns
    return saved


def _is_wide(sequence: Sequence, in_loop: bool) -> bool:
    """True for little but kernels that do not read each other: two threads take half of the time."""
    least_ns = LIMITS.min_wide_loop_ns if in_loop else LIMITS.min_wide_ns
    return sequence.wide_ns > max(least_ns, LIMITS.max_wide * sequence.total_ns)


def _is_best_in_order(context: Context, sequence: Sequence) -> bool:
    """True where little runs on several cores, or would on further threads."""
    threads = min(context.model.cores, 1 + LIMITS.workers)
    share = LIMITS.max_handed_out if sequence.is_handed_out else LIMITS.max_overlap
    gain_ns = sequence.beside_ns * (1.0 - 1.0 / threads)
    return gain_ns <= LIMITS.max_gain_ns and sequence.overlap_ns <= share * sequence.beside_ns


STEP: Final = Step(
    name="sequential kernels",
    summary="Computations of many short kernels run them in order, instead of handing them to workers.",
    apply=apply,
    after=("packed functions",),
    min_saved_share=0.01,
    min_saved_ns=500.0,
    limits=LIMITS,
)
