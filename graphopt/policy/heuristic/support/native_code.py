"""Native code under some decisions: its roots, its length, the program's time with it.

A native region is one function on one core. It saves the dispatch of every kernel inside and the hand-over
between threads, and its kernels run one after the other in its order; matrix products in it are plain loops.
"""

from __future__ import annotations

import numpy as np

from graphopt.costs.opaque import is_wall
from graphopt.costs.sliced_reductions import SLICED
from graphopt.costs.windows import KEEP
from graphopt.hlo import RESTRUCTURES, Decisions, Graph
from graphopt.hlo.module.layouts import extents
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure import CODE
from graphopt.policy.heuristic.support.chains import decided_chains
from graphopt.policy.heuristic.support.concatenations import is_choice_of_loads, is_slow_fused
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.walls import open_walls, unroll


def make_native(context: Context, wanted: Decisions, loop: int) -> None:
    """Makes a loop native, its walls replaced and its products in the faster form; changes `wanted`."""
    wanted.unit[loop] = context.native
    open_inside(context, wanted, loop)


def open_inside(context: Context, wanted: Decisions, loop: int) -> None:
    """Replaces what keeps a loop from being native, also in the loops inside it."""
    graph, callees = context.graph, context.model.callees
    for index in callees[loop]:
        computation = graph.computations[index]
        nodes = range(computation.first, computation.end)
        open_walls(graph, wanted, nodes)
        for node in nodes:
            write_faster(context, wanted, node)
            if node in callees and not unroll(graph, wanted, node):
                open_inside(context, wanted, node)


def write_faster(context: Context, wanted: Decisions, node: int) -> None:
    """Gives products, windows, reductions, concatenations and views in native code the faster form."""
    graph, model = context.graph, context.model
    if wanted.restructure[node]:
        return
    if graph.ops[node].name == "dot":
        wanted.restructure[node] = CODE[model.product(node).native_form]
    elif node in model.windows and (form := model.windows[node].native_form) != KEEP:
        wanted.restructure[node] = CODE[form]
    elif node in model.sliced and model.sliced[node].is_sliced:
        _reduce_in_slices(context, wanted, node)
    elif is_choice_of_loads(graph, wanted, node):
        wanted.fuse[node] = True
    elif is_slow_fused(graph, model, node) or _is_divided_view(context, wanted, node):
        wanted.fuse[node] = False


def _reduce_in_slices(context: Context, wanted: Decisions, node: int) -> None:
    """Makes a reduction in slices, of an array that is written to memory first."""
    wanted.restructure[node] = CODE[SLICED]
    apart = context.model.sliced[node].apart
    if apart is not None:
        wanted.fuse[apart] = False


def _is_divided_view(context: Context, wanted: Decisions, node: int) -> bool:
    """True for reshapes of arrays in memory, inside whose kernels native code divides for every element.

    A bitcast that stands by itself is a name for the same memory and costs nothing.
    """
    graph = context.graph
    if graph.ops[node].name != "bitcast" or not graph.masks.fuse[node, 0]:
        return False
    (operand,) = graph.operand_lists[node]
    shapes = graph.source.shapes
    return not wanted.fuse[operand] and extents(shapes[node]) != extents(shapes[operand])


def native_roots(context: Context) -> list[int]:
    """Native loops, and roots of native kernels, that are inside no other native loop."""
    decisions = context.decisions
    nodes = np.flatnonzero(~decisions.fuse & (decisions.unit == context.native)).tolist()
    return [node for node in nodes if not context.is_inside_native(node)]


def loops_taken_apart(context: Context) -> list[int]:
    """Loops that XLA made native and that are decided not to be."""
    graph = context.graph
    apart = (graph.default.unit == context.native) & (context.decisions.unit != context.native)
    return [node for node in np.flatnonzero(apart).tolist() if node in context.model.callees]


def around_loops_taken_apart(context: Context) -> set[int]:
    """The loops that are taken apart, and all that calls them."""
    graph = context.graph
    found: set[int] = set()
    for node in loops_taken_apart(context):
        caller: int | None = node
        while caller is not None and caller not in found:
            found.add(caller)
            caller = graph.computations[graph.computation[caller]].caller
    return found


def called_ns(context: Context, loop: int) -> float:
    """Nanoseconds of a loop that the executor runs, what is inside as XLA has it."""
    model = context.model
    return model.outside(loop).default_ns(model.cores)


def program_ns(context: Context) -> float:
    """Nanoseconds of the whole program: native code and chains at their own times, all else as by default."""
    model = context.model
    total = context.program_ns
    for node in loops_taken_apart(context):
        longer = called_ns(context, node) - model.control(node).native_ns()
        total += longer * context.executions(node)
    for node in native_roots(context):
        saved = context.costs.thunk_ns
        if node in model.callees:
            loop = model.control(node)
            saved = loop.default_ns(model.cores) - loop.native_ns()
        total -= saved * context.executions(node)
    for chain in decided_chains(context):
        if not context.is_inside_native(chain.loop):
            total -= chain.saved_ns * context.executions(chain.loop)
    return total


def native_code(context: Context) -> float:
    """Length of all native code (see `LoopCosts.code`), by which its compile time grows."""
    total = 0.0
    for node in native_roots(context):
        if node in context.model.callees:
            total += context.model.control(node).code
        else:
            total += region_code(context, [node])
    return total


def region_code(context: Context, roots: list[int]) -> float:
    """Length of the code of some kernels, products in the forms that are decided."""
    decisions, model = context.decisions, context.model
    members = [n for root in roots for n in model.members(decisions.fuse, root)]
    forms = (RESTRUCTURES[code].name for code in decisions.restructure[members])
    return sum(model.code_length(*pair) for pair in zip(members, forms, strict=True))


def is_root(context: Context, node: int) -> bool:
    """True for the root of a kernel that computes something."""
    graph, fuse = context.graph, context.decisions.fuse
    op = graph.ops[node]
    view = op.name == "bitcast" and not fuse[graph.operand_lists[node][0]]
    return bool(not fuse[node] and op.kind not in (OpKind.STRUCTURE, OpKind.CONTROL) and not view)


def is_short(context: Context, node: int, limit_ns: float) -> bool:
    """True for a kernel, no wall, of less work than a limit, its products as plain loops."""
    if is_wall(context.graph, node):
        return False
    fuse, model = context.decisions.fuse, context.model
    return model.cluster_ns(fuse, node, plain_products=True) < limit_ns - model.native_extra(node)


def native_below(context: Context, limit_ns: float) -> Decisions:
    """Decisions with every kernel of less estimated work on one core than that in native code, as it is."""
    allowed = np.flatnonzero(context.masks.unit[:, context.native]).tolist()
    chosen = [n for n in allowed if is_root(context, n) and is_short(context, n, limit_ns)]
    wanted = context.decisions.copy()
    wanted.unit[chosen] = context.native
    return wanted


def instructions(context: Context, root: int) -> float:
    """About how many instructions one iteration of a kernel's innermost loop has."""
    graph = context.graph
    members = set(context.model.members(context.decisions.fuse, root))
    read = {operand for member in members for operand in _read(graph, member)} - members
    loads = sum(graph.elements[operand] > 1 for operand in read)
    computed = sum(graph.ops[member].kind is OpKind.ELEMENTWISE for member in members)
    return context.costs.loop_instructions + int(loads) + computed


def _read(graph: Graph, node: int) -> list[int]:
    """Operands that are loaded, element by element; an array that is updated in place is not."""
    operands = graph.operand_lists[node]
    return operands[1:] if graph.ops[node].name == "dynamic-update-slice" else operands
