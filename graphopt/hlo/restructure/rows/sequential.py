"""Running the kernels of a computation in order, on one thread (see `graphopt.hlo.emit.sequences`).

Decided once per computation that XLA runs kernel by kernel, at its first parameter.
"""

from __future__ import annotations

from typing import Final

from graphopt.hlo.graph.walks import first_parameter
from graphopt.hlo.module.index import device_count
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.schedule import IN_ORDER_THUNKS
from graphopt.hlo.restructure.rows import caller_thread
from graphopt.hlo.restructure.sites import Candidate

RULES: Final = {
    "not-a-computation": "only the first parameter of a computation stands for its kernels",
    "few-kernels": "sequences of so few kernels run in order anyway",
    "meeting-devices": "a device that waits for others would hold up all that follows",
    "waits-for-the-host": "it sends to the host or takes from it, which all that follows would wait for",
}

OPCODES: Final = frozenset({"parameter"})


def forbids(candidate: Candidate) -> str | None:
    """Why a node does not stand for a computation whose kernels may run in order."""
    graph, node = candidate.graph, candidate.node
    index = int(graph.computation[node])
    if node != first_parameter(graph, index):
        return "not-a-computation"
    computation = graph.computations[index]
    nodes = range(computation.first, computation.end)
    if sum(graph.ops[n].kind is not OpKind.STRUCTURE for n in nodes) <= IN_ORDER_THUNKS:
        return "few-kernels"
    if device_count(graph.source.module) > 1:
        return "meeting-devices"
    if any(graph.ops[n].name in ("infeed", "outfeed") for n in nodes):
        return "waits-for-the-host"
    return None


def forbids_on_caller(candidate: Candidate) -> str | None:
    """Why a node does not stand for a program that may run so on the thread that calls it."""
    return caller_thread.forbids(candidate) or forbids(candidate)
