"""Short programs, which the thread that calls them runs itself sooner than a worker is woken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import program_ns
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    Handing over and waking up take some tens of microseconds (``benchmarks/dispatch.py``). Longer programs
    gain a smaller part by it, while a caller who has other work to do than to wait loses that much overlap.
    Of seven programs of more library calls all gained on the caller's thread on one machine, and five lost
    on another of the same type, whose calls take twice as long.
    """

    min_program_ns: float = limit(
        2_000.0, "ns", "shorter programs end before the caller waits for them"
    )
    max_program_ns: float = limit(150_000.0, "ns", "longer programs stay with a worker")
    max_library_calls: int = limit(
        8, "calls", "programs of more calls of the library stay with a worker"
    )
    few_kernels: int = limit(
        2, "kernels", "short programs of so few kernels are left alone altogether"
    )


LIMITS: Final = Limits()


def apply(context: Context) -> Edit | None:
    """Runs a short program on the thread of its caller."""
    allowed = np.flatnonzero(context.masks.restructure[:, CODE["caller-thread"]])
    if not len(allowed):
        return None
    short = LIMITS.min_program_ns < program_ns(context) < LIMITS.max_program_ns
    if not short or _library_calls(context.graph, context.decisions) > LIMITS.max_library_calls:
        return None
    wanted = context.decisions.copy()
    wanted.restructure[allowed[0]] = CODE["caller-thread"]
    saved = context.costs.handover_ns
    return context.edit(wanted, saved, "the program is over sooner than a worker is woken")


def _library_calls(graph: Graph, decisions: Decisions) -> int:
    """Kernels of the entry computation that the library computes, matrix products among them."""
    native = unit_index(graph.units, UnitKind.NATIVE)
    library = unit_index(graph.units, UnitKind.LIBRARY)
    entry = graph.computations[-1]
    return sum(
        decisions.unit[node] == library
        or (graph.ops[node].name == "dot" and decisions.unit[node] != native)
        for node in range(entry.first, entry.end)
        if not decisions.fuse[node]
    )


def is_negligible(graph: Graph, model: CostModel) -> bool:
    """True for a program so short that no decision in it could be noticed."""
    few = graph.default_cluster_count <= LIMITS.few_kernels
    return few and model.computations[-1].default_ns(model.cores) < LIMITS.min_program_ns


def asynchronous(decisions: Decisions) -> Decisions:
    """The same decisions, but a worker runs the program, as XLA has it."""
    codes = decisions.restructure
    moved = codes == CODE["caller-thread"]
    return decisions.with_changes(restructure=np.where(moved, np.int8(0), codes))


STEP: Final = Step(
    name="caller thread",
    summary="Short programs run on the thread that calls them, not on a worker.",
    apply=apply,
    after=("packed functions",),
    limits=LIMITS,
)
