"""Which values the heuristic writes to memory, that XLA would compute anew for every use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.costs.elements import FLOATS, element_ns, reduced_ns
from graphopt.costs.evaluations import Evaluations, evaluation_ns, holds_loop
from graphopt.costs.model import CostModel
from graphopt.hlo import Graph
from graphopt.hlo.graph.layouts import innermost, row
from graphopt.hlo.module.proto import DType
from graphopt.machine import CpuCosts, UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.in_memory import memory_ns, set_parts
from graphopt.policy.heuristic.support.native_code import program_ns
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step. One more kernel between others is one more wait for the other core."""

    margin: float = limit(1.15, "ratio", "recomputing must cost so many times what memory does")
    min_saved_ns: float = limit(
        3000.0, "ns", "what writing one value must save per run, beyond that"
    )
    min_kept_share: float = limit(0.03, "of the program", "the same as a part of its time")


LIMITS: Final = Limits()

_ADDRESSES: Final = frozenset({"bitcast", "broadcast", "iota", "reshape"})
"""In a loop these are addresses, or computed once per row."""

NEVER_WRITTEN: Final = _ADDRESSES | {"compare", "copy"}
"""Larger or cheaper than what they read, or bytes among floats: their operand is written instead."""

MAX_READERS: Final = 32
"""Kernels that read a value are counted up to this number."""


def apply(context: Context) -> Edit | None:
    """Writes values to memory whose recomputation costs more than a trip through memory."""
    graph, model = context.graph, context.model
    elements = graph.elements.tolist()
    wanted = context.decisions.copy()
    fuse = wanted.fuse.tolist()
    may_write = context.masks.fuse[:, 0].tolist()
    own_ns = _own_ns(graph, model, fuse)
    most_ns = _most_ns(graph, model, fuse, own_ns)
    in_registers = _in_registers(context, fuse)
    behind_loads = (context.costs.hidden_operations / _rates(graph, context.costs)).tolist()
    least = max(LIMITS.min_saved_ns, LIMITS.min_kept_share * program_ns(context))
    trips = _Trips(context, fuse)
    counted = Evaluations(graph, model.shares)
    saved = 0.0
    for node in range(len(graph) - 1, -1, -1):
        if fuse[node]:  # nobody asks who reads what is in memory already
            trips.pass_on(node)
        written = fuse[node] and may_write[node] and not in_registers[node]
        if written and trips.is_in_library(node):
            written = False
        if written and graph.ops[node].name not in NEVER_WRITTEN:
            evaluated = counted.of(node)
            again = evaluated - elements[node]
            memory = trips.memory_ns(node, counted.across(node) if again > 0.0 else 0.0)
            memory += trips.joined_ns(node, evaluated) if again > 0.0 else 0.0
            times = max(1.0, context.executions(node))
            needed = LIMITS.margin * memory + least / times
            if most_ns[node] > behind_loads[node] and again * most_ns[node] > needed:
                ns = evaluation_ns(graph, model.shares, node, fuse, own_ns)
                if ns > behind_loads[node] and again * ns > needed:
                    fuse[node] = False
                    saved += (again * ns - memory) * times
                    set_parts(context, wanted, node, ns)
        counted.pass_on(node, fuse)
    wanted.fuse[:] = fuse
    return context.edit(wanted, saved, "values written to memory instead of computed again")


class _Trips:
    """What trips through memory take; callers go through nodes in falling order."""

    def __init__(self, context: Context, fuse: list[bool]) -> None:
        """`fuse` may change for nodes that have been passed."""
        graph = context.graph
        self._context, self._graph, self._costs, self._fuse = context, graph, context.costs, fuse
        # chains of integer operations (random bits, hashes) are cheap to repeat there
        self._in_native = (context.in_native & np.isin(graph.dtype, list(FLOATS))).tolist()
        self._nbytes = graph.nbytes.tolist()
        self._readers: list[frozenset[int]] = [frozenset()] * len(graph)
        self._reads_alike: list[bool] = []

    def pass_on(self, node: int) -> None:
        """Counts the kernels that would read a fused node; all its users have been passed."""
        users = self._graph.user_lists[node]
        self._readers[node] = _readers(users, self._fuse, self._readers)

    def is_in_library(self, node: int) -> bool:
        """True for a value that one call of the kernel library computes, which does everything once."""
        if len(self._readers[node]) != 1:
            return False
        (root,) = self._readers[node]
        unit = self._graph.units[self._context.decisions.unit[root]]
        return unit.kind is UnitKind.LIBRARY and not self._context.is_inside_native(root)

    def joined_ns(self, node: int, evaluated: float) -> float:
        """Nanoseconds that reading a value at so many places takes longer where all kernels join short rows.

        Functions are slow there too, as no vector code is made of them.
        """
        simple = self._graph.ops[node].cost <= 1.0
        joined = simple and all(self._joins_short_rows(root) for root in self._readers[node])
        return evaluated * self._costs.joined_read_ns if joined else 0.0

    def _joins_short_rows(self, root: int) -> bool:
        graph = self._graph
        if graph.ops[root].name != "concatenate" or row(graph, root) >= self._costs.min_row:
            return False
        return innermost(graph, root) in graph.source.protos[root].dimensions

    def memory_ns(self, node: int, across: float) -> float:
        """Nanoseconds of a value's trip, `across` of its elements read in another order."""
        if across:
            # what a node reads comes before it, so it is still fused as it was at first
            self._reads_alike = self._reads_alike or _reads_alike(self._graph, self._fuse)
            across = 0.0 if self._reads_alike[node] else across
        costs = self._costs
        start = costs.native_kernel_ns if self._in_native[node] else costs.thunk_ns
        readers = len(self._readers[node])
        return start + memory_ns(costs, self._nbytes[node], readers, across)


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


def _rates(graph: Graph, costs: CpuCosts) -> NDArray[np.float64]:
    """Operations per nanosecond, per node.

    Double precision that no argument has is that of forms: chains of simple operations in vector code, which
    take no longer there than those of single precision.
    """
    floats = np.isin(graph.dtype, list(FLOATS))
    rates = np.where(floats, costs.fused_operations_per_ns, costs.integer_operations_per_ns)
    wide = graph.dtype == DType.F64
    if not wide.any():
        return rates
    given = np.array([op.name == "parameter" for op in graph.ops], np.bool_)
    simple = np.array([op.cost <= 1.0 for op in graph.ops], np.bool_)
    return rates if (wide & given).any() else np.where(wide & simple, 2.0 * rates, rates)


def _in_registers(context: Context, fuse: list[bool]) -> list[bool]:
    """Per node: it is so small that native code keeps it in registers."""
    graph = context.graph
    few = context.in_native & (graph.elements <= context.costs.registers)
    out: list[bool] = (
        few & ~np.array(holds_loop(graph, context.model.shares, fuse), np.bool_)
    ).tolist()
    return out


def _reads_alike(graph: Graph, fuse: list[bool]) -> list[bool]:
    """Per node: it reads an array from memory that is about as large, so its order of reading is not new."""
    users = np.repeat(np.arange(len(graph)), np.diff(graph.operand_start))
    large = 2 * graph.elements[graph.operands] >= graph.elements[users]
    out = [False] * len(graph)
    for user, operand in zip(users[large].tolist(), graph.operands[large].tolist(), strict=True):
        if not fuse[operand] or out[operand]:
            out[user] = True
    return out


def _own_ns(graph: Graph, model: CostModel, fuse: list[bool]) -> list[float]:
    """Nanoseconds of one element of each fused node, its operands not counted; 0 for others."""
    out = [0.0] * len(graph)
    rates = _rates(graph, model.costs).tolist()
    for node, op in enumerate(graph.ops):
        if not fuse[node] or op.name in _ADDRESSES:
            continue
        if op.name == "reduce":
            out[node] = reduced_ns(graph, node, model.costs) * model.shares[node][0]
        else:
            out[node] = element_ns(graph, node, rates[node], model.costs)
    return out


def _most_ns(graph: Graph, model: CostModel, fuse: list[bool], own_ns: list[float]) -> list[float]:
    """Nanoseconds to compute one element of each fused node, every use of a value counted: a quick bound."""
    out = [0.0] * len(graph)
    for node in range(len(graph)):
        if not fuse[node]:
            continue
        ns = own_ns[node]
        for operand, share in zip(graph.operand_lists[node], model.shares[node], strict=True):
            ns += out[operand] * share
        out[node] = min(ns, 1e6)
    return out


STEP: Final = Step(
    name="keep in memory",
    summary="Values that XLA recomputes at more cost than a trip through memory are written to memory.",
    apply=apply,
    after=("native loops", "small runs", "views"),
    limits=LIMITS,
)
