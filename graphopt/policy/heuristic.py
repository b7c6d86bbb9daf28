"""The hand-written heuristic: what a careful engineer would change in XLA:CPU's decisions.

Six steps, each a function that edits a copy of XLA's decisions:

1. loops over small tensors become native regions (dispatch of tiny kernels dominates them); what
   keeps a loop from that, such as a scatter or a call into LAPACK, is replaced;
2. in the remaining loops, runs of small kernels become native regions;
3. reductions to scalars that XLA computes in scalar code or from copies become trees;
4. values that XLA recomputes at more cost than a trip through memory are written to memory;
5. normalisations (reduce, then elementwise of the same rows) go to the kernel library as one call;
6. outputs of one shape that read the same large arrays are computed in one pass.

Where a step expects no clear gain it changes nothing; where no step does, the policy returns None.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module import Role
from graphopt.hlo.ops import OpKind
from graphopt.hlo.schema import HloInstructionProto
from graphopt.machine import UnitKind
from graphopt.policy import costs, walls
from graphopt.policy.costs import CostModel

MARGIN: Final = 1.2
"""Estimated gain from which a loop becomes native."""

MAX_NATIVE_CODE: Final = 2800.0
"""Largest loop (`LoopCosts.code`), inner ones included, compiled as one function: compile time grows
faster than size. At this size it is about 1.5 times that of XLA's default; regions inside the loop
are cut to a length where it is not longer than the default's."""

SMALL_KERNEL_NS: Final = 500.0
"""A kernel shorter than this spends a good part of its time in dispatch."""

MIN_EXECUTIONS: Final = 8.0
"""Straight-line regions are made inside loops only where code runs this often per call."""

MIN_SAVED_SHARE: Final = 0.03
"""Part of a body's time that regions inside it must save in dispatch: below, the order of execution that
they bring along can cost more."""

MIN_ENTRY_KERNELS: Final = 48
"""Outside loops they are made only of so many small kernels."""

RECOMPUTE_MARGIN: Final = 2.5
MIN_SAVED_NS: Final = 1000.0
"""A value is written to memory where that saves this much and `RECOMPUTE_MARGIN` times its cost."""

_NEVER_WRITTEN: Final = frozenset({"bitcast", "broadcast", "iota", "reshape"})
"""Larger or cheaper than what they read: their operand is written instead."""

LARGE_BYTES: Final = 1 << 19
"""Outputs are joined from this size: what they both read no longer waits in a core's cache for the
second of them, while separate ones can be computed on two cores at once."""

LIBRARY_ELEMENTS: Final = 1 << 15
MAX_CLOSURE: Final = 64
"""Largest set of fused users followed to find where a value ends up."""


STEPS: Final = (
    "native loops",
    "small runs",
    "reductions",
    "keep in memory",
    "library normalisations",
    "one pass outputs",
)
"""Names of the steps, in order."""


def heuristic(graph: Graph) -> Decisions | None:
    """Decisions for one graph, or None where no gain is expected."""
    decisions = heuristic_steps(graph, STEPS)
    return None if decisions.same_as(graph.default) else decisions


def heuristic_steps(graph: Graph, steps: Collection[str]) -> Decisions:
    """Decisions of some of the steps only, for searches that try them apart."""
    model = CostModel(graph)
    decisions = graph.default.copy()
    masks = graph.masks
    native: set[int] = set()
    if "native loops" in steps:
        native = _native_loops(graph, model, decisions, masks.unit)
    if "small runs" in steps:
        _small_runs(graph, model, decisions, masks.unit, native)
    if "reductions" in steps:
        walls.replace_reductions(graph, decisions, model.computations[-1].default_ns(model.cores))
    if "keep in memory" in steps:
        _keep_in_memory(graph, decisions, masks.fuse)
    if "library normalisations" in steps:
        _library_normalisations(graph, decisions, masks.fuse, masks.unit, native)
    if "one pass outputs" in steps:
        _one_pass_outputs(graph, decisions, masks.join, native)
    return decisions


def _unit_index(graph: Graph, kind: UnitKind) -> int:
    return next(i for i, unit in enumerate(graph.units) if unit.kind is kind)


def _native_loops(
    graph: Graph, model: CostModel, decisions: Decisions, allowed: np.ndarray
) -> set[int]:
    """Makes loops native, outermost first; returns the computations inside them."""
    unit = _unit_index(graph, UnitKind.NATIVE)
    inside: set[int] = set()
    for index in range(len(graph.computations) - 1, -1, -1):
        computation = graph.computations[index]
        if index in inside:
            _include(model, range(computation.first, computation.end), inside)
            continue
        for node in model.callees:
            if not computation.first <= node < computation.end:
                continue
            if decisions.unit[node] == unit:
                inside.update(model.callees[node])
                continue
            cost = model.control(node)
            if (
                graph.ops[node].name == "while"
                and allowed[node, unit]
                and cost.code <= MAX_NATIVE_CODE
                and cost.default_ns(model.cores) > MARGIN * cost.native_ns() + costs.LOOP_NS
            ):
                decisions.unit[node] = unit
                inside.update(model.callees[node])
                _open_walls(graph, model, decisions, node)
    return inside


def _open_walls(graph: Graph, model: CostModel, decisions: Decisions, loop: int) -> None:
    """Replaces what keeps a loop from being native, also in the loops inside it."""
    for index in model.callees[loop]:
        computation = graph.computations[index]
        nodes = range(computation.first, computation.end)
        walls.open_walls(graph, decisions, nodes)
        for node in nodes:
            if node in model.callees and not walls.unroll(graph, decisions, node):
                _open_walls(graph, model, decisions, node)


def _include(model: CostModel, nodes: range, inside: set[int]) -> None:
    for node in nodes:
        inside.update(model.callees.get(node, ()))


def _small_runs(
    graph: Graph,
    model: CostModel,
    decisions: Decisions,
    allowed: np.ndarray,
    native: set[int],
) -> None:
    """Gathers small kernels of loop bodies and branches into native regions."""
    unit = _unit_index(graph, UnitKind.NATIVE)
    for index, computation in enumerate(graph.computations):
        if index in native:
            continue
        small = [
            node
            for node in range(computation.first, computation.end)
            if not decisions.fuse[node]
            and allowed[node, unit]
            and _is_small(graph, model, decisions, node)
        ]
        if not _worth_regions(graph, model, index, len(small)):
            continue
        decisions.unit[small] = unit
        for node in small:
            if walls.is_wall(graph, node):
                decisions.restructure[node] = walls.opening_code(graph, node)


def _worth_regions(graph: Graph, model: CostModel, index: int, small: int) -> bool:
    """Regions are made where code runs often, or where dispatch of many kernels is the time."""
    computation = graph.computations[index]
    if computation.role in (Role.LOOP_BODY, Role.BRANCH):
        saved = (small - 1) * costs.THUNK_NS
        whole = model.computations[index].default_ns(model.cores)
        often = graph.executions[computation.first] >= MIN_EXECUTIONS
        return bool(often and saved > MIN_SAVED_SHARE * whole)
    return computation.role is Role.ENTRY and small >= MIN_ENTRY_KERNELS


def _is_small(graph: Graph, model: CostModel, decisions: Decisions, node: int) -> bool:
    """True for a kernel that spends a good part of its time in dispatch, now or when replaced."""
    op = graph.ops[node]
    if op.kind in (OpKind.STRUCTURE, OpKind.CONTROL) or op.name == "bitcast":
        return False
    if walls.is_wall(graph, node):
        call, replacement = walls.wall_costs(graph, node)
        return replacement < call + costs.THUNK_NS
    if op.name == "dot":
        flops = costs.dot_flops(graph, node)
        call = costs.RUNTIME_CALL_NS + flops / costs.DOT_FLOPS_PER_NS
        return flops / costs.NATIVE_DOT_FLOPS_PER_NS < call
    if graph.units[decisions.unit[node]].threads > 1:
        return False
    return _cluster_work(graph, model, node) < SMALL_KERNEL_NS


def _cluster_work(graph: Graph, model: CostModel, root: int) -> float:
    seen, stack, total = {root}, [root], 0.0
    while stack:
        node = stack.pop()
        total += model.work[node]
        for operand in graph.operand_lists[node]:
            if operand not in seen and graph.default.fuse[operand]:
                seen.add(operand)
                stack.append(operand)
    return total


def _keep_in_memory(graph: Graph, decisions: Decisions, allowed: np.ndarray) -> None:
    """Writes values to memory whose recomputation costs more than a trip through memory.

    Goes from results to inputs. `uses` counts evaluations of each value per index expression:
    elementwise users at the same index share one evaluation, others add their own.
    """
    operand_lists, ops = graph.operand_lists, graph.ops
    elements, nbytes = graph.elements.tolist(), graph.nbytes.tolist()
    fuse = decisions.fuse.tolist()
    may_write = allowed[:, 0].tolist()
    unit_cost = _cost_per_element(graph, fuse)
    uses: list[dict[tuple[int, int], float]] = [{} for _ in range(len(graph))]
    for node in range(len(graph) - 1, -1, -1):
        if fuse[node] and may_write[node] and ops[node].name not in _NEVER_WRITTEN:
            total = sum(uses[node].values())
            readers = len(graph.user_lists[node])
            if _worth_writing(total, elements[node], nbytes[node], unit_cost[node], readers):
                fuse[node] = False
                _set_parts(graph, decisions, node, unit_cost[node])
        if not fuse[node]:
            uses[node] = {(node, -1): float(elements[node])}
        here = sum(uses[node].values())
        elementwise = ops[node].kind is OpKind.ELEMENTWISE
        for slot, operand in enumerate(operand_lists[node]):
            if not fuse[operand]:
                continue
            if elementwise:
                uses[operand].update(uses[node])
            else:
                share = _share(graph, node, operand)
                uses[operand][node, slot] = min(here * share, 1e15)
    decisions.fuse[:] = fuse


def _worth_writing(
    evaluations: float, elements: int, nbytes: int, cost: float, readers: int
) -> bool:
    extra = (evaluations - elements) * cost / costs.OPERATIONS_PER_NS
    rate = costs.BYTES_PER_NS if nbytes > 1 << 19 else costs.CACHED_BYTES_PER_NS
    memory = costs.THUNK_NS + nbytes * (1 + readers) / rate
    return extra > RECOMPUTE_MARGIN * memory + MIN_SAVED_NS


def _cost_per_element(graph: Graph, fuse: list[bool]) -> list[float]:
    """Operations to compute one element of each node from values in memory."""
    out: list[float] = []
    for node, op in enumerate(graph.ops):
        cost = op.cost
        for operand in graph.operand_lists[node]:
            if fuse[operand]:
                cost += out[operand] * _share(graph, node, operand)
        out.append(min(cost, 1e6))
    return out


def _share(graph: Graph, node: int, operand: int) -> float:
    """Operand elements evaluated per result element."""
    op = graph.ops[node]
    if op.name == "reduce":
        return max(1.0, float(graph.elements[operand]) / max(1.0, float(graph.elements[node])))
    if op.name in ("concatenate", "pad") or (
        op.name == "broadcast" and _repeats_innermost(graph, node)
    ):
        return float(graph.elements[operand]) / max(1.0, float(graph.elements[node]))
    return 1.0


def _repeats_innermost(graph: Graph, node: int) -> bool:
    """True if a broadcast repeats its operand along the innermost loop, which computes it once."""
    shape = graph.source.shapes[node]
    if not shape.dimensions:
        return False
    proto = HloInstructionProto.FromString(graph.source.attributes[node])
    return shape.layout.minor_to_major[0] not in proto.dimensions


def _set_parts(graph: Graph, decisions: Decisions, node: int, cost: float) -> None:
    """Splits a new large loop over the cores, as XLA would have."""
    loops = [i for i, unit in enumerate(graph.units) if unit.kind is UnitKind.LOOP]
    wanted = max(float(graph.nbytes[node]) / (256 << 10), float(graph.elements[node]) * cost / 4e5)
    for index in reversed(loops):
        if graph.units[index].threads <= wanted and graph.masks.unit[node, index]:
            decisions.unit[node] = index
            return


def _library_normalisations(
    graph: Graph,
    decisions: Decisions,
    may_fuse: np.ndarray,
    may_unit: np.ndarray,
    native: set[int],
) -> None:
    """Hands a reduction and the elementwise code around it to the library as one call."""
    library = _unit_index(graph, UnitKind.LIBRARY)
    inside_ok, root_ok = graph.library_nodes
    for root in range(len(graph) - 1, -1, -1):
        if (
            decisions.fuse[root]
            or not root_ok[root]
            or graph.ops[root].name == "dot"
            or graph.elements[root] < LIBRARY_ELEMENTS
            or not may_unit[root, library]
            or int(graph.computation[root]) in native
        ):
            continue
        members = _library_closure(graph, decisions, root, inside_ok, may_fuse)
        if members is None:
            continue
        decisions.unit[root] = library
        for member in members:
            if member != root:
                decisions.fuse[member] = True


def _library_closure(
    graph: Graph,
    decisions: Decisions,
    root: int,
    inside_ok: list[bool],
    may_fuse: np.ndarray,
) -> set[int] | None:
    """Nodes that one library call would compute: fused ones, and roots that only they use.

    None if nothing is gained: no reduction inside that another member waits for.
    """
    members = {root}
    stack = [root]
    reductions = 0
    while stack:
        node = stack.pop()
        for operand in graph.operand_lists[node]:
            if operand in members or graph.ops[operand].name == "constant":
                continue
            if decisions.fuse[operand]:
                if not inside_ok[operand]:
                    return None
            elif not (
                inside_ok[operand]
                and may_fuse[operand, 1]
                and graph.ops[operand].name != "dot"
                and _within(graph, decisions, operand, members)
            ):
                continue
            else:
                reductions += graph.ops[operand].name == "reduce"
            members.add(operand)
            stack.append(operand)
    return members if reductions else None


def _within(graph: Graph, decisions: Decisions, value: int, members: set[int]) -> bool:
    """True if a value's users are all members, or fused only into members."""
    stack, seen = [value], {value}
    while stack:
        for user in graph.user_lists[stack.pop()]:
            if user in members or user in seen:
                continue
            if not decisions.fuse[user] or len(seen) > MAX_CLOSURE:
                return False
            seen.add(user)
            stack.append(user)
    return True


def _one_pass_outputs(
    graph: Graph, decisions: Decisions, may_join: np.ndarray, native: set[int]
) -> None:
    """Joins large outputs of one shape that read a common large array."""
    readers: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for root in range(len(graph)):
        if decisions.fuse[root] or graph.nbytes[root] < LARGE_BYTES or not may_join[root, 1]:
            continue
        if graph.units[decisions.unit[root]].kind is not UnitKind.LOOP:
            continue
        if int(graph.computation[root]) in native:
            continue
        for operand in _elementwise_inputs(graph, decisions, root):
            if graph.nbytes[operand] >= graph.nbytes[root]:
                readers.setdefault((operand, tuple(graph.dim_lists[root])), []).append(root)
    for roots in readers.values():
        if len(roots) > 1:
            decisions.join[roots[1:]] = True


def _elementwise_inputs(graph: Graph, decisions: Decisions, root: int) -> set[int]:
    """Values in memory that a cluster reads at its own index; empty if it has other large reads."""
    seen, stack, inputs = {root}, [root], set()
    while stack:
        node = stack.pop()
        if graph.ops[node].kind is not OpKind.ELEMENTWISE:
            continue
        for operand in graph.operand_lists[node]:
            if operand in seen:
                continue
            seen.add(operand)
            if decisions.fuse[operand]:
                stack.append(operand)
            else:
                inputs.add(operand)
    return inputs
