"""Kernels that XLA's tiled code generator computes, and that its loop generator computes sooner.

So do those of odd rows, over other dimensions; in native loops all are written so that are written anew, and
this step has those of loops that XLA made native.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from graphopt.costs.elements import ends_ns, tiled_complex_ns, tiled_ns
from graphopt.hlo import Graph
from graphopt.hlo.graph.layouts import VECTOR, flat_form, is_guarded, row
from graphopt.hlo.graph.tiled import is_tiled
from graphopt.hlo.graph.walks import inputs_of
from graphopt.hlo.module.proto import DTYPE_BYTES
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.native_code import instructions
from graphopt.policy.heuristic.support.step import Step


def apply(context: Context) -> Edit | None:
    """Chooses the loop generator for elementwise kernels, where that saves a part of the program's time."""
    graph, decisions, code = context.graph, context.decisions, CODE["loop-kernel"]
    chosen, saved = [], 0.0
    default = graph.default.unit
    own = context.inside(n for n in context.model.callees if default[n] == context.native)
    for root in np.flatnonzero(context.masks.restructure[:, code]).tolist():
        unit = graph.units[decisions.unit[root]]
        if decisions.fuse[root] or decisions.join[root] or unit.kind is not UnitKind.LOOP:
            continue
        saved_ns = _saved_ns(context, root, own)
        if saved_ns > 0.0:
            chosen.append(root)
            saved += saved_ns / unit.threads * context.executions(root)
    wanted = decisions.copy()
    wanted.restructure[chosen] = code
    return context.edit(wanted, saved, f"{len(chosen)} kernels by the loop code generator")


def _saved_ns(context: Context, root: int, own: Collection[int]) -> float:
    """Nanoseconds that another form of a kernel saves on one core; 0 where that takes longer.

    Args:
        context: the graph and its decisions so far.
        root: of the kernel.
        own: computations inside loops that XLA makes native itself.
    """
    graph, unit = context.graph, int(context.decisions.unit[root])
    members = context.model.members(context.decisions.fuse, root)
    at_ends_ns = _odd_rows_ns(context, root, members)
    from_loops = int(graph.computation[root]) in own
    if context.is_inside_native(root):
        return at_ends_ns if from_loops else 0.0
    if from_loops or not is_tiled(graph, root, members):
        return at_ends_ns
    if not at_ends_ns and is_guarded(graph, root, members, unit):
        return 0.0
    return max(0.0, at_ends_ns + _untiled_ns(context, root, members))


def _odd_rows_ns(context: Context, root: int, members: Sequence[int]) -> float:
    """Nanoseconds that scalar code takes longer; 0 where there is none, or dimensions have to stay."""
    graph, costs = context.graph, context.costs
    operands = inputs_of(graph, members)
    form = flat_form(graph, root, members, operands)
    threads = graph.units[context.decisions.unit[root]].threads
    if form is None or form.of(graph.source.shapes[root]).dimensions[0] % threads:
        return 0.0
    length = row(graph, root)
    unrolled = length * instructions(context, root) <= costs.unrolled_instructions
    if length % VECTOR == 0 and (is_tiled(graph, root, members) or not unrolled):
        return 0.0
    end_ns = costs.row_end_ns + ends_ns(graph, members, length, costs)
    repeated = sum(int(graph.elements[o]) == form.row for o in operands) if form.times > 1 else 0
    saved: float = end_ns * float(graph.elements[root]) / length
    native = context.is_inside_native(root)
    lost: float = repeated * (costs.native_kernel_ns if native else threads * costs.thunk_ns)
    return max(0.0, saved - lost)


def _untiled_ns(context: Context, root: int, members: Sequence[int]) -> float:
    """Nanoseconds that the loop generator saves on one core; negative where it takes longer."""
    graph, costs = context.graph, context.costs
    elements = float(graph.elements[root])
    width = _tile_width(graph, root, costs.tile)
    tile_ns = costs.tile_ns if width == costs.tile else costs.narrow_tile_ns
    one_byte = DTYPE_BYTES.get(int(graph.dtype[root])) == 1
    element_ns = costs.tiled_byte_ns if one_byte else costs.tiled_element_ns
    functions_ns = sum(tiled_ns(graph, node, costs) for node in members)
    functions_ns += tiled_complex_ns(graph, members, costs)
    return tile_ns * elements / width + (element_ns + functions_ns) * elements


def _tile_width(graph: Graph, root: int, widest: int) -> int:
    """Elements of a tile along the dimension that lies together in memory: a power of two that divides it."""
    minor = graph.source.shapes[root].layout.minor_to_major
    size = graph.dim_lists[root][minor[0]] if minor else 1
    return min(widest, size & -size)


STEP: Final = Step(
    name="loop kernels",
    summary="Elementwise kernels come from XLA's loop generator, over other dimensions where that helps.",
    apply=apply,
    after=("one pass outputs", "one core", "short reductions"),
    min_saved_ns=500.0,
    min_saved_share=0.01,
)
