"""Short programs, which the thread that calls them runs itself sooner than a worker is woken."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic.native import program_ns

MIN_PROGRAM_NS: Final = 2_000.0
"""Shorter programs are over before the caller waits for them: single operations, mostly."""

FEW_KERNELS: Final = 2
"""Programs of so few kernels, and shorter than that, take a small part of what calling them does."""

MAX_LIBRARY_CALLS: Final = 8
"""Programs of more calls of the library stay with a worker: of seven such programs all gained on the caller's
thread on one machine, and five lost on another of the same type, whose calls take twice as long."""

MAX_PROGRAM_NS: Final = 150_000.0
"""Estimated. Handing over and waking up take some tens of microseconds (``benchmarks/dispatch.py``). Longer
programs gain a smaller part by it, while a caller who has other work to do than to wait loses that much
overlap."""


def caller_thread(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Runs a short program on the thread of its caller.

    Args:
        graph: of the program.
        model: its costs.
        decisions: all others; changed in place.
    """
    allowed = np.flatnonzero(graph.masks.restructure[:, CODE["caller-thread"]])
    if not len(allowed):
        return
    short = MIN_PROGRAM_NS < program_ns(graph, model, decisions) < MAX_PROGRAM_NS
    if short and _library_calls(graph, decisions) <= MAX_LIBRARY_CALLS:
        decisions.restructure[allowed[0]] = CODE["caller-thread"]


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
    few = graph.default_cluster_count <= FEW_KERNELS
    return few and model.computations[-1].default_ns(model.cores) < MIN_PROGRAM_NS


def asynchronous(decisions: Decisions) -> Decisions:
    """The same decisions, but a worker runs the program, as XLA has it."""
    codes = decisions.restructure
    moved = codes == CODE["caller-thread"]
    return decisions.with_changes(restructure=np.where(moved, np.int8(0), codes))
