"""Which values the heuristic writes to memory, that XLA would compute anew for every use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.elements import FLOATS, element_ns, reduced_ns
from graphopt.costs.evaluations import Evaluations, holds_loop
from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.machine import CpuCosts, UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import program_ns
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step. One more kernel between others is one more wait for the other core."""

    margin: float = limit(2.5, "ratio", "recomputing must cost so many times what memory does")
    min_saved_ns: float = limit(
        8000.0, "ns", "what writing one value must save per run, beyond that"
    )
    min_kept_share: float = limit(0.03, "of the program", "the same as a part of its time")


LIMITS: Final = Limits()

_ADDRESSES: Final = frozenset({"bitcast", "broadcast", "iota", "reshape"})
"""In a loop these are addresses, or computed once per row."""

NEVER_WRITTEN: Final = _ADDRESSES | {"copy"}
"""Larger or cheaper than what they read: their operand is written instead."""

MAX_READERS: Final = 32
"""Kernels that read a value are counted up to this number."""


def apply(context: Context) -> Edit | None:
    """Writes values to memory whose recomputation costs more than a trip through memory."""
    graph, model, costs = context.graph, context.model, context.costs
    elements, nbytes = graph.elements.tolist(), graph.nbytes.tolist()
    wanted = context.decisions.copy()
    fuse = wanted.fuse.tolist()
    may_write = context.masks.fuse[:, 0].tolist()
    unit_ns = _ns_per_element(graph, model, fuse)
    least = max(LIMITS.min_saved_ns, LIMITS.min_kept_share * program_ns(context))
    # chains of integer operations (random bits, hashes) are cheap to repeat there
    in_native = (context.in_native & np.isin(graph.dtype, list(FLOATS))).tolist()
    hidden = _hidden(context, unit_ns, fuse)
    reads_alike: list[bool] = []
    counted = Evaluations(graph, model.shares)
    readers: list[frozenset[int]] = [frozenset()] * len(graph)
    saved = 0.0
    for node in range(len(graph) - 1, -1, -1):
        if fuse[node]:  # nobody asks who reads what is in memory already
            readers[node] = _readers(graph.user_lists[node], fuse, readers)
        written = fuse[node] and may_write[node] and not hidden[node]
        if written and _is_in_library(context, readers[node]):
            written = False
        if written and graph.ops[node].name not in NEVER_WRITTEN:
            extra = (counted.of(node) - elements[node]) * unit_ns[node]
            across = counted.across(node)
            if across and extra > 0.0:
                # what a node reads comes before it, so it is still fused as it was at first
                reads_alike = reads_alike or _reads_alike(graph, fuse)
                across = 0.0 if reads_alike[node] else across
            start = costs.native_kernel_ns if in_native[node] else costs.thunk_ns
            memory = start + _memory_ns(costs, nbytes[node], len(readers[node]), across)
            times = max(1.0, context.executions(node))
            if extra > LIMITS.margin * memory + least / times:
                fuse[node] = False
                saved += (extra - memory) * times
                _set_parts(context, wanted, node, unit_ns[node])
        counted.pass_on(node, fuse)
    wanted.fuse[:] = fuse
    return context.edit(wanted, saved, "values written to memory instead of computed again")


def _readers(users: list[int], fuse: list[bool], readers: list[frozenset[int]]) -> frozenset[int]:
    """Roots of the kernels that would read a value from memory; `MAX_READERS` of them if there are more."""
    if len(users) == 1 and fuse[users[0]]:
        return readers[users[0]]
    found: set[int] = set()
    for user in users:
        found.update(readers[user] if fuse[user] else (user,))
        if len(found) >= MAX_READERS:
            break
    return frozenset(sorted(found)[:MAX_READERS])


def _is_in_library(context: Context, readers: frozenset[int]) -> bool:
    """True for a value that one call of the kernel library computes, which does everything once."""
    if len(readers) != 1:
        return False
    (root,) = readers
    unit = context.graph.units[context.decisions.unit[root]]
    return unit.kind is UnitKind.LIBRARY and not context.is_inside_native(root)


def _rates(graph: Graph, costs: CpuCosts) -> NDArray[np.float64]:
    """Operations per nanosecond, per node."""
    floats = np.isin(graph.dtype, list(FLOATS))
    return np.where(floats, costs.fused_operations_per_ns, costs.integer_operations_per_ns)


def _hidden(context: Context, unit_ns: list[float], fuse: list[bool]) -> list[bool]:
    """Per node: repeating it costs nothing, in registers or behind loads."""
    graph, costs = context.graph, context.costs
    few = context.in_native & (graph.elements <= costs.registers)
    in_registers = few & ~np.array(holds_loop(graph, context.model.shares, fuse), np.bool_)
    behind_loads = unit_ns <= costs.hidden_operations / _rates(graph, costs)
    out: list[bool] = (in_registers | behind_loads).tolist()
    return out


def _memory_ns(costs: CpuCosts, nbytes: int, readers: int, across: float) -> float:
    """Nanoseconds of a value's trip through memory to `readers` kernels, `across` of its elements read in
    another order, beside beginning the kernel that writes it.

    A kernel that reads a value at several places (the neighbours of a stencil) fetches it once.
    """
    large = nbytes > costs.cached_bytes
    rate = costs.bytes_per_ns if large else costs.cached_bytes_per_ns
    return nbytes * (1 + readers) / rate + across * costs.across_ns


def _reads_alike(graph: Graph, fuse: list[bool]) -> list[bool]:
    """Per node: it reads an array from memory that is about as large, so its order of reading is not new."""
    users = np.repeat(np.arange(len(graph)), np.diff(graph.operand_start))
    large = 2 * graph.elements[graph.operands] >= graph.elements[users]
    out = [False] * len(graph)
    for user, operand in zip(users[large].tolist(), graph.operands[large].tolist(), strict=True):
        if not fuse[operand] or out[operand]:
            out[user] = True
    return out


def _ns_per_element(graph: Graph, model: CostModel, fuse: list[bool]) -> list[float]:
    """Nanoseconds to compute one element of each fused node from values in memory; 0 for others."""
    out = [0.0] * len(graph)
    rates = _rates(graph, model.costs).tolist()
    for node, op in enumerate(graph.ops):
        if not fuse[node]:
            continue
        shares = model.shares[node]
        ns = 0.0 if op.name in _ADDRESSES else element_ns(graph, node, rates[node], model.costs)
        if op.name == "reduce":
            ns = reduced_ns(graph, node, model.costs) * shares[0]
        for operand, share in zip(graph.operand_lists[node], shares, strict=True):
            ns += out[operand] * share
        out[node] = min(ns, 1e6)
    return out


def _set_parts(context: Context, decisions: Decisions, node: int, ns: float) -> None:
    """Splits a new loop over the cores that is large, or takes `ns` long per element."""
    graph, costs = context.graph, context.costs
    loops = [i for i, unit in enumerate(graph.units) if unit.kind is UnitKind.LOOP]
    work = float(graph.elements[node]) * ns / costs.part_ns
    wanted = max(float(graph.nbytes[node]) / costs.part_bytes, work)
    for index in reversed(loops):
        if graph.units[index].threads <= wanted and graph.masks.unit[node, index]:
            decisions.unit[node] = index
            return


STEP: Final = Step(
    name="keep in memory",
    summary="Values that XLA recomputes at more cost than a trip through memory are written to memory.",
    apply=apply,
    after=("native loops", "small runs", "views"),
    limits=LIMITS,
)
