"""Short programs, which the thread that calls them runs itself sooner than a worker is woken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.walks import first_parameter
from graphopt.hlo.module.opcodes import OP_BY_NAME
from graphopt.hlo.restructure import CODE, IN_ORDER, ON_CALLER, dispatch_code
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import program_ns
from graphopt.policy.heuristic.support.sequences import is_gone, sequence_of
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    Handing over and waking up take some tens of microseconds (``benchmarks/dispatch.py``). Longer programs
    gain a smaller part by it, while a caller who has other work to do than to wait loses that much overlap.
    A call itself is such work: programs that take less than it lose (0.57x to 0.9x) where nobody waits for
    each result. Estimates of short programs are half to a fifth of what they take.
    Calls of the library and of LAPACK cost more on the caller's thread on some machines: programs of up to 16
    products gain nothing there (0.4x to 1.1x), and all gain on others.
    """

    min_program_ns: float = limit(
        2_000.0, "ns", "shorter programs end before the caller waits for them"
    )
    min_calls: float = limit(
        0.4, "times the caller's part of a call", "shorter programs end before the next call begins"
    )
    max_program_ns: float = limit(150_000.0, "ns", "longer programs stay with a worker")
    max_single_ns: float = limit(
        350_000.0, "ns", "the same of programs whose kernels run on one core each"
    )
    max_shared: float = limit(
        0.1, "of the program", "what kernels on several cores may take in such a program"
    )
    min_nodes: int = limit(
        6, "nodes", "fewer are one call among many, whose caller does not wait for it"
    )
    few_kernels: int = limit(
        2, "kernels", "short programs of so few kernels are left alone altogether"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Runs a short program on the thread of its caller."""
    if len(context.graph) < LIMITS.min_nodes:
        return None
    return _edit(context, max(LIMITS.min_program_ns, LIMITS.min_calls * _call_ns(context)))


def for_waiting_callers(graph: Graph, decisions: Decisions | None) -> Decisions | None:
    """The same decisions, but a short program, however short, runs on the thread of its caller.

    Args:
        graph: of a program whose callers wait for each result.
        decisions: about it; None for XLA's default.
    """
    before = graph.default if decisions is None else decisions
    context = Context(graph, CostModel(graph), before)
    edit = _edit(context, 0.0)
    if edit is None or not edit.saved_ns > STEP.least_ns(context.program_ns):
        return decisions
    return edit.applied_to(before)


def _edit(context: Context, least_ns: float) -> Edit | None:
    """Runs a program that takes longer than that on its caller's thread, if that gains."""
    node = first_parameter(context.graph, -1)
    if node is None or not context.masks.restructure[node, CODE["caller-thread"]]:
        return None
    saved = context.costs.handover_ns
    saved -= _library_calls(context.graph, context.decisions) * context.costs.library_on_caller_ns
    saved -= _opaque_calls(context) * context.costs.opaque_on_caller_ns
    if saved <= 0 or not _is_short(context, least_ns):
        return None
    wanted = context.decisions.copy()
    in_order = bool(IN_ORDER[wanted.restructure[node]])
    wanted.restructure[node] = dispatch_code(on_caller=True, in_order=in_order)
    return context.edit(wanted, saved, "the program is over sooner than a worker is woken")


def _program_ns(context: Context) -> float:
    """About what one run takes: of a program of little but native code, the sum of its kernels."""
    return max(program_ns(context), 0.0) or sequence_of(context, -1).total_ns


def _is_short(context: Context, least_ns: float) -> bool:
    """True for a program that outlasts the call, and is over soon enough.

    Kernels on several cores wait for workers on any thread: a program of many has the shorter limit.
    """
    program = _program_ns(context)
    if not least_ns < program < LIMITS.max_single_ns:
        return False
    return program < LIMITS.max_program_ns or _shared_ns(context) <= LIMITS.max_shared * program


def _shared_ns(context: Context) -> float:
    """Nanoseconds that kernels on several cores take per run of the program."""
    computations = enumerate(context.graph.computations)
    return sum(
        sequence_of(context, index).overlap_ns * context.executions(computation.root)
        for index, computation in computations
        if not is_gone(context, index)
    )


def _call_ns(context: Context) -> float:
    """What a call of the program takes its caller, who makes every result and holds every argument."""
    graph, entry = context.graph, context.graph.computations[-1]
    inputs = sum(graph.ops[node].name == "parameter" for node in range(entry.first, entry.end))
    several = graph.ops[entry.root].name == "tuple"
    outputs = len(graph.operand_lists[entry.root]) if several else 1
    return context.costs.call_ns + (inputs + outputs) * context.costs.buffer_ns


def _library_calls(graph: Graph, decisions: Decisions) -> int:
    """Kernels of the entry computation that the library computes, matrix products among them."""
    native = unit_index(graph.units, UnitKind.NATIVE)
    library = unit_index(graph.units, UnitKind.LIBRARY)
    entry = graph.computations[-1]
    written = decisions.restructure == CODE["dot-reduce"]
    return sum(
        decisions.unit[node] == library
        or (graph.ops[node].name == "dot" and not written[node] and decisions.unit[node] != native)
        for node in range(entry.first, entry.end)
        if not decisions.fuse[node]
    )


def _opaque_calls(context: Context) -> float:
    """Calls of LAPACK and of users' code that one run of the program makes outside native code."""
    inside = context.in_native | (context.decisions.unit == context.native)
    called = (context.graph.opcode == OP_BY_NAME["custom-call"].code) & ~inside
    return float(context.graph.executions[called].sum())


def is_negligible(graph: Graph, model: CostModel) -> bool:
    """True for a program so short that no decision in it could be noticed."""
    few = graph.default_cluster_count <= LIMITS.few_kernels
    return few and model.computations[-1].default_ns(model.cores) < LIMITS.min_program_ns


def asynchronous(decisions: Decisions) -> Decisions:
    """The same decisions, but a worker runs the program, as XLA has it."""
    codes = decisions.restructure
    stays = [dispatch_code(on_caller=False, in_order=bool(o)) for o in IN_ORDER]
    moved = np.where(ON_CALLER[codes], np.array(stays, np.int8)[codes], codes)
    return decisions.with_changes(restructure=moved)


STEP: Final = Step(
    name="caller thread",
    summary="Short programs run on the thread that calls them, not on a worker.",
    apply=apply,
    after=("sequential kernels",),
    limits=LIMITS,
)
