"""What becomes native code: whole loops, and runs of short kernels.

A native region is one function on one core. It saves the dispatch of every kernel inside and the hand-over
between threads, and its kernels run one after the other in its order; matrix products in it are plain loops.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from graphopt.costs.model import LOOP_NS, THUNK_NS, CostModel, LoopCosts, code_length, trips
from graphopt.costs.opaque import is_wall, wall_costs
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.module.index import Role
from graphopt.hlo.module.layouts import extents
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind, unit_index
from graphopt.policy.heuristic import walls
from graphopt.policy.heuristic.concatenations import is_choice_of_loads, is_slow_fused

MARGINS: Final = ((50_000.0, 0.7), (200_000.0, 1.0), (math.inf, 1.2))
"""Longest iteration in nanoseconds -> estimated gain from which such a loop becomes native. Matrix products
count in full. Below 1 for short iterations, because one function also saves what the estimate does not know,
such as arrays that stay in the caches; with longer ones there is less to save, and two cores to lose."""

MAX_NATIVE_CODE: Final = 2800.0
"""Largest loop (`LoopCosts.code`), inner ones included, compiled as one function: compile time grows
faster than size. At this size it is about 1.5 times that of XLA's default; regions inside the loop
are cut to a length where it is not longer than the default's."""

COSTLY_GAIN: Final = 0.2
COSTLY_SHARE: Final = 0.1
"""Part of the program's time that a native loop, or a region of short kernels, must save if its code is
longer than the whole program's own: matrix products count much there, and nothing where the library computes
them."""

LONG_WINDOW_NS: Final = 100_000.0
"""Window operations that take longer in a loop kernel stay with XLA, which splits them over the cores."""

WINDOW_SPLIT_NS: Final = 5_000.0
"""Handing a part of a window operation to another core, and waiting for it."""

MIN_WINDOW_SAVED_NS: Final = 5_000.0
"""What changing one window operation must save per run of the program, and `MIN_SAVED_SHARE` of its time."""

TINY_KERNEL_NS: Final = 500.0
SMALL_KERNEL_NS: Final = 2000.0
"""A kernel shorter than these spends most, or a good part, of its time in dispatch and hand-over."""

MIN_EXECUTIONS: Final = 8.0
MIN_BODY_SHARE: Final = 0.05
"""Walls are replaced in bodies that run this often per call, where regions save this part of a body's
time in dispatch. With less, programs of the training families gained nothing, and compiled 1.2 to 1.4 times
as long."""

MIN_CALLS_NS: Final = 20_000.0
"""What replacing a call of LAPACK outside native loops must save: one replacement more to compile."""

MIN_SAVED_SHARE: Final = 0.02
"""Part of the program's time that the regions of one computation must save in dispatch: below, compiling them
takes longer than they are worth."""


def native_loops(graph: Graph, model: CostModel, decisions: Decisions) -> set[int]:
    """Makes loops native, outermost first; returns the computations inside them."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    allowed = graph.masks.unit
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
                and _pays(graph, model, node, cost)
            ):
                make_native(graph, model, decisions, node)
                inside.update(model.callees[node])
    return inside


def make_native(graph: Graph, model: CostModel, decisions: Decisions, loop: int) -> None:
    """Makes a loop native, its walls replaced and its products in the faster form; changes `decisions`."""
    decisions.unit[loop] = unit_index(graph.units, UnitKind.NATIVE)
    _open_walls(graph, model, decisions, loop)


def _pays(graph: Graph, model: CostModel, loop: int, cost: LoopCosts) -> bool:
    default = cost.default_ns(model.cores)
    iterations = trips(graph, model.callees[loop][0])
    margin = next(margin for longest, margin in MARGINS if default <= longest * iterations)
    work = cost.work_ns + cost.reduced_ns
    native = cost.native_dot_ns + margin * work + LOOP_NS
    if cost.code > model.own_code:
        program = model.computations[-1].default_ns(model.cores)
        return (default - native) * float(graph.executions[loop]) > COSTLY_GAIN * program
    return default > native


def _open_walls(graph: Graph, model: CostModel, decisions: Decisions, loop: int) -> None:
    """Replaces what keeps a loop from being native, also in the loops inside it."""
    for index in model.callees[loop]:
        computation = graph.computations[index]
        nodes = range(computation.first, computation.end)
        walls.open_walls(graph, decisions, nodes)
        for node in nodes:
            _write_faster(graph, model, decisions, node)
            if node in model.callees and not walls.unroll(graph, decisions, node):
                _open_walls(graph, model, decisions, node)


def _write_faster(graph: Graph, model: CostModel, decisions: Decisions, node: int) -> None:
    """Gives products, windows, concatenations and views in native code the faster form; others stay."""
    if decisions.restructure[node]:
        return
    if graph.ops[node].name == "dot":
        decisions.restructure[node] = CODE[model.product(node).native_form]
    elif node in model.windows and model.windows[node].is_shifted:
        decisions.restructure[node] = CODE["window-doubling"]
    elif is_choice_of_loads(graph, decisions, node):
        decisions.fuse[node] = True
    elif is_slow_fused(graph, model, node) or _is_divided_view(graph, decisions, node):
        decisions.fuse[node] = False


def _is_divided_view(graph: Graph, decisions: Decisions, node: int) -> bool:
    """True for reshapes of arrays in memory, inside whose kernels native code divides for every element.

    A bitcast that stands by itself is a name for the same memory and costs nothing.
    """
    if graph.ops[node].name != "bitcast" or not graph.masks.fuse[node, 0]:
        return False
    (operand,) = graph.operand_lists[node]
    shapes = graph.source.shapes
    return not decisions.fuse[operand] and extents(shapes[node]) != extents(shapes[operand])


def _include(model: CostModel, nodes: range, inside: set[int]) -> None:
    for node in nodes:
        inside.update(model.callees.get(node, ()))


def small_runs(graph: Graph, model: CostModel, decisions: Decisions, native: set[int]) -> None:
    """Gathers small kernels outside native loops into native regions.

    In bodies that run often, where regions save a good part of the time, walls and small products among
    them are replaced; elsewhere only slow calls of LAPACK are, and kernels that are no calls gathered.

    Args:
        graph: of the program.
        model: its costs.
        decisions: changed in place.
        native: computations that are native already.
    """
    unit = unit_index(graph.units, UnitKind.NATIVE)
    allowed = graph.masks.unit[:, unit].tolist()
    program_ns = model.computations[-1].default_ns(model.cores)
    for index, computation in enumerate(graph.computations):
        if index in native:
            continue
        nodes = range(computation.first, computation.end)
        movable = [node for node in nodes if allowed[node] and _is_root(graph, decisions, node)]
        if _runs_often(graph, index):
            tiny = [node for node in movable if _is_tiny(graph, model, decisions, node)]
            _gather_tiny(graph, model, decisions, index, tiny)
        small = [
            node for node in movable if _is_short(graph, model, decisions, node, SMALL_KERNEL_NS)
        ]
        if _saves(graph, model, decisions, small, program_ns):
            decisions.unit[small] = unit
        for node in movable:
            if node in model.windows and decisions.unit[node] != unit:
                _place_window(graph, model, decisions, node, program_ns)
            if _is_slow_call(graph, node, max(MIN_CALLS_NS, MIN_SAVED_SHARE * program_ns)):
                decisions.unit[node] = unit
                decisions.restructure[node] = walls.opening_code(graph, node)


def _saves(
    graph: Graph, model: CostModel, decisions: Decisions, small: list[int], program_ns: float
) -> bool:
    """True if short kernels of one computation are worth native code: more so if that is long."""
    if len(small) < 2:
        return False
    executions = float(graph.executions[small[0]])
    saved = (len(small) - 1) * THUNK_NS * executions
    if saved <= MIN_SAVED_SHARE * program_ns:
        return False
    if _region_code(graph, model, decisions, small) <= model.own_code:
        return True
    return saved + _products_gain(graph, model, small) * executions > COSTLY_SHARE * program_ns


def _place_window(
    graph: Graph, model: CostModel, decisions: Decisions, node: int, program_ns: float
) -> None:
    """Gives a window operation outside native code the faster form and unit."""
    window, native = model.windows[node], unit_index(graph.units, UnitKind.NATIVE)
    threads = graph.units[decisions.unit[node]].threads
    now = window.loop_ns / threads + (WINDOW_SPLIT_NS if threads > 1 else 0.0)
    may_move = window.loop_ns <= LONG_WINDOW_NS and graph.masks.unit[node, native]
    if may_move:
        then, shifted = window.native_ns, window.is_shifted
    elif window.is_shifted_in_loops and window.shifted_loop_ns is not None:
        then, shifted = window.shifted_loop_ns / threads, True
    else:
        return
    saved = (now - then) * float(graph.executions[node])
    if saved <= max(MIN_WINDOW_SAVED_NS, MIN_SAVED_SHARE * program_ns):
        return
    if may_move:
        decisions.unit[node] = native
    if shifted:
        decisions.restructure[node] = CODE["window-doubling"]


def _is_slow_call(graph: Graph, node: int, least_ns: float) -> bool:
    """True for LAPACK calls on so many small matrices that a loop of their own saves half, and so much."""
    if graph.ops[node].name != "custom-call" or not walls.opening_code(graph, node):
        return False
    call, replacement = wall_costs(graph, node)
    return (call - 2.0 * replacement) * float(graph.executions[node]) > least_ns


def _runs_often(graph: Graph, index: int) -> bool:
    computation = graph.computations[index]
    return bool(
        computation.role in (Role.LOOP_BODY, Role.BRANCH)
        and graph.executions[computation.first] >= MIN_EXECUTIONS
    )


def _gather_tiny(
    graph: Graph, model: CostModel, decisions: Decisions, index: int, tiny: list[int]
) -> None:
    """Makes the tiny kernels of a body native where that saves a good part of its time."""
    saved = (len(tiny) - 1) * THUNK_NS
    if saved <= MIN_BODY_SHARE * model.computations[index].default_ns(model.cores):
        return
    decisions.unit[tiny] = unit_index(graph.units, UnitKind.NATIVE)
    for node in tiny:
        if is_wall(graph, node):
            decisions.restructure[node] = walls.opening_code(graph, node)
        _write_faster(graph, model, decisions, node)


def native_below(graph: Graph, model: CostModel, decisions: Decisions, limit_ns: float) -> None:
    """Puts every kernel of less estimated work on one core than that into native code, as it is."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    for node in np.flatnonzero(graph.masks.unit[:, unit]).tolist():
        if _is_root(graph, decisions, node) and _is_short(graph, model, decisions, node, limit_ns):
            decisions.unit[node] = unit


def inside_native(graph: Graph, model: CostModel, decisions: Decisions) -> set[int]:
    """Computations inside native loops."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    inside: set[int] = set()
    for node in sorted(model.callees, reverse=True):  # callers before callees
        if int(graph.computation[node]) in inside or decisions.unit[node] == unit:
            inside.update(model.callees[node])
    return inside


def native_roots(graph: Graph, model: CostModel, decisions: Decisions) -> list[int]:
    """Native loops, and roots of native kernels, that are inside no other native loop."""
    unit = unit_index(graph.units, UnitKind.NATIVE)
    inside = inside_native(graph, model, decisions)
    nodes = np.flatnonzero(~decisions.fuse & (decisions.unit == unit)).tolist()
    return [node for node in nodes if int(graph.computation[node]) not in inside]


def program_ns(graph: Graph, model: CostModel, decisions: Decisions) -> float:
    """Nanoseconds of the whole program, native code at its own times and all else as XLA's default."""
    total = model.computations[-1].default_ns(model.cores)
    for node in native_roots(graph, model, decisions):
        saved = THUNK_NS
        if node in model.callees:
            loop = model.control(node)
            saved = loop.default_ns(model.cores) - loop.native_ns()
        total -= saved * float(graph.executions[node])
    return total


def native_code(graph: Graph, model: CostModel, decisions: Decisions) -> float:
    """Length of all native code (see `LoopCosts.code`), by which its compile time grows."""
    total = 0.0
    for node in native_roots(graph, model, decisions):
        if node in model.callees:
            total += model.control(node).code
        else:
            total += _region_code(graph, model, decisions, [node])
    return total


def _region_code(graph: Graph, model: CostModel, decisions: Decisions, roots: list[int]) -> float:
    members = (node for root in roots for node in model.members(decisions.fuse, root))
    return sum(code_length(graph, node) for node in members)


def _products_gain(graph: Graph, model: CostModel, roots: list[int]) -> float:
    """Nanoseconds by which products are faster as plain loops than by the library; less than 0 if slower."""
    found = [model.product(node) for node in roots if graph.ops[node].name == "dot"]
    return sum(product.library_ns - product.plain_ns for product in found)


def _is_root(graph: Graph, decisions: Decisions, node: int) -> bool:
    """True for the root of a kernel that computes something."""
    op = graph.ops[node]
    view = op.name == "bitcast" and not decisions.fuse[graph.operand_lists[node][0]]
    return bool(
        not decisions.fuse[node] and op.kind not in (OpKind.STRUCTURE, OpKind.CONTROL) and not view
    )


def _is_short(
    graph: Graph, model: CostModel, decisions: Decisions, node: int, limit_ns: float
) -> bool:
    """True for a kernel, no wall, of less work than a limit, its products as plain loops."""
    if is_wall(graph, node):
        return False
    return model.cluster_ns(decisions.fuse, node, plain_products=True) < limit_ns


def _is_tiny(graph: Graph, model: CostModel, decisions: Decisions, node: int) -> bool:
    """True for a kernel that spends a good part of its time in dispatch, now or when replaced."""
    if is_wall(graph, node):
        call, replacement = wall_costs(graph, node)
        return replacement < call + THUNK_NS
    if graph.ops[node].name == "dot":
        product = model.product(node)
        return product.native_ns < product.library_ns
    if graph.units[decisions.unit[node]].threads > 1:
        return False
    return model.cluster_ns(decisions.fuse, node) < TINY_KERNEL_NS
