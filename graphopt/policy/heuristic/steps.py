"""The hand-written heuristic: what a careful engineer would change in XLA:CPU's decisions.

Thirteen steps, each a function that edits a copy of XLA's decisions:

1. loops over small tensors become native regions (dispatch of tiny kernels dominates them); what
   keeps a loop from that, such as a scatter or a call into LAPACK, is replaced;
2. what a loop's iterations compute from its counter and from constants, such as random numbers, is
   computed for all of them ahead of it, where that is much;
3. elsewhere, runs of small kernels become native regions;
4. reductions to scalars that XLA computes in scalar code or from copies become trees;
5. kernels that end with a reshape end in front of it;
6. values that XLA recomputes at more cost than a trip through memory are written to memory;
7. normalisations (reduce, then elementwise of the same rows) go to the kernel library as one call;
8. outputs of one shape that read the same large arrays are computed in one pass;
9. loops that XLA splits over cores, but that are too short for it, run on one;
10. short reductions leave the kernel library, whose call takes longer than they do;
11. kernels of elementwise operations come from XLA's loop code generator, not from its tiled one;
12. functions of scalars and small arrays in native code are computed together;
13. short programs run on the thread that calls them, not on a worker.

Where a step expects no clear gain it changes nothing; where no step does, the policy returns None.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from graphopt.costs.model import BYTES_PER_NS, CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import HloInstructionProto
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic import walls
from graphopt.policy.heuristic.batched_products import reduce_batches
from graphopt.policy.heuristic.before_views import end_before_views
from graphopt.policy.heuristic.caller_thread import caller_thread, is_negligible
from graphopt.policy.heuristic.hoist import compute_ahead
from graphopt.policy.heuristic.leave_library import leave_library
from graphopt.policy.heuristic.loop_generator import loop_kernels
from graphopt.policy.heuristic.materialize import keep_in_memory
from graphopt.policy.heuristic.native import native_loops, small_runs
from graphopt.policy.heuristic.pack import pack_functions

LARGE_BYTES: Final = 1 << 18
JOINED_BYTES: Final = 1 << 20
"""Outputs are joined from this size each and together: what they all read no longer waits in a core's cache
for the next of them, while separate ones can be computed on two cores at once."""

MAX_JOINED_WORK: Final = 10.0
"""Kernels that compute so many times longer than they write gain nothing from being joined, and a long loop
with more outputs has fewer registers."""

LIBRARY_ELEMENTS: Final = 1 << 15
REDUCTIONS: Final = 2
MAX_MEMBERS: Final = 24
"""Reductions of one normalisation, and nodes that it has at most."""

MAX_CLOSURE: Final = 64
"""Largest set of fused users followed to find where a value ends up."""


SPLIT_NS: Final = 15_000.0
SPLIT_BYTES: Final = 1 << 18
"""Handing the parts of one kernel to other threads and waiting for them, in nanoseconds of estimated work;
loops that read and write more bytes gain from the caches of two cores whatever their work."""


STEPS: Final = (
    "native loops",
    "ahead of loops",
    "small runs",
    "batched products",
    "reductions",
    "views",
    "keep in memory",
    "library normalisations",
    "one pass outputs",
    "one core",
    "short reductions",
    "loop kernels",
    "packed functions",
    "caller thread",
)
"""Names of the steps, in order."""


def heuristic(graph: Graph) -> Decisions | None:
    """Decisions for one graph, or None where no gain is expected."""
    model = CostModel(graph)
    if is_negligible(graph, model):
        return None
    decisions = heuristic_steps(graph, STEPS, model)
    return None if decisions.same_as(graph.default) else decisions


def heuristic_steps(
    graph: Graph, steps: Collection[str], model: CostModel | None = None
) -> Decisions:
    """Decisions of some of the steps only, for searches that try them apart.

    Args:
        graph: of the program.
        steps: some of `STEPS`.
        model: the graph's costs, if they are known already.
    """
    model = CostModel(graph) if model is None else model
    decisions = graph.default.copy()
    masks = graph.masks
    native: set[int] = set()
    if "native loops" in steps:
        native = native_loops(graph, model, decisions)
    if "ahead of loops" in steps:
        compute_ahead(graph, decisions)
    if "small runs" in steps:
        small_runs(graph, model, decisions, native)
    if "batched products" in steps:
        reduce_batches(graph, model, decisions)
    if "reductions" in steps:
        walls.replace_reductions(graph, decisions, model.computations[-1].default_ns(model.cores))
    if "views" in steps:
        end_before_views(graph, model, decisions)
    if "keep in memory" in steps:
        keep_in_memory(graph, model, decisions)
    if "library normalisations" in steps:
        _library_normalisations(graph, decisions, masks.fuse, masks.unit, native)
    if "one pass outputs" in steps:
        _one_pass_outputs(graph, model, decisions, native)
    if "one core" in steps:
        one_core(graph, model, decisions)
    if "short reductions" in steps:
        leave_library(graph, model, decisions)
    if "loop kernels" in steps:
        loop_kernels(graph, model, decisions)
    if "packed functions" in steps:
        pack_functions(graph, model, decisions)
    if "caller thread" in steps:
        caller_thread(graph, model, decisions)
    return decisions


def _library_normalisations(
    graph: Graph,
    decisions: Decisions,
    may_fuse: np.ndarray,
    may_unit: np.ndarray,
    native: set[int],
) -> None:
    """Hands a reduction and the elementwise code around it to the library as one call."""
    library = unit_index(graph.units, UnitKind.LIBRARY)
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

    None if nothing is gained: it is not the two reductions of one normalisation over rows (mean and variance,
    maximum and sum), of which one is written to memory now. With one there is too little to save; chains of
    normalisations, and those over columns, are slow as one call.
    """
    members = {root}
    stack = [root]
    reductions = written = 0
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
                written += graph.ops[operand].name == "reduce"
            if graph.ops[operand].name == "reduce":
                reductions += 1
                if not _reduces_rows(graph, operand):
                    return None
            members.add(operand)
            stack.append(operand)
    usual = reductions == REDUCTIONS and len(members) <= MAX_MEMBERS
    return members if written and usual else None


def _reduces_rows(graph: Graph, node: int) -> bool:
    """True if a reduction is over the dimension that lies together in memory, and no other."""
    proto = HloInstructionProto.FromString(graph.source.attributes[node])
    layout = graph.source.shapes[graph.operand_lists[node][0]].layout
    return list(proto.dimensions) == [layout.minor_to_major[0]]


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
    graph: Graph, model: CostModel, decisions: Decisions, native: set[int]
) -> None:
    """Joins large outputs of one shape that read a common large array."""
    readers: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for root in range(len(graph)):
        if decisions.fuse[root] or graph.nbytes[root] < LARGE_BYTES:
            continue
        if graph.units[decisions.unit[root]].kind is not UnitKind.LOOP:
            continue
        if not graph.masks.join[root, 1] or int(graph.computation[root]) in native:
            continue
        if _computes_long(graph, model, decisions, root):
            continue
        for operand in _elementwise_inputs(graph, decisions, root):
            if graph.nbytes[operand] >= graph.nbytes[root]:
                readers.setdefault((operand, tuple(graph.dim_lists[root])), []).append(root)
    for roots in readers.values():
        if len(roots) > 1 and sum(graph.nbytes[root] for root in roots) >= JOINED_BYTES:
            decisions.join[roots[1:]] = True


def _computes_long(graph: Graph, model: CostModel, decisions: Decisions, root: int) -> bool:
    written_ns = float(graph.nbytes[root]) / BYTES_PER_NS
    return model.cluster_ns(decisions.fuse, root) > MAX_JOINED_WORK * written_ns


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


def one_core(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Keeps loops on one core where splitting them costs more than it saves."""
    single = next(
        (i for i, u in enumerate(graph.units) if u.kind is UnitKind.LOOP and u.threads == 1), None
    )
    if single is None:
        return
    for root in range(len(graph)):
        unit = graph.units[decisions.unit[root]]
        if decisions.fuse[root] or unit.kind is not UnitKind.LOOP or unit.threads < 2:
            continue
        saved = model.cluster_ns(decisions.fuse, root) * (1.0 - 1.0 / unit.threads)
        small = saved < SPLIT_NS and _moved_bytes(graph, model, decisions, root) <= SPLIT_BYTES
        if small and graph.masks.unit[root, single]:
            decisions.unit[root] = single


def _moved_bytes(graph: Graph, model: CostModel, decisions: Decisions, root: int) -> int:
    """Bytes that a kernel reads from memory and writes there, every array counted once."""
    inside = set(model.members(decisions.fuse, root))
    read = {operand for node in inside for operand in graph.operand_lists[node]} - inside
    return int(graph.nbytes[root]) + sum(int(graph.nbytes[operand]) for operand in read)
