"""Kernels that XLA's tiled code generator computes, and that its loop generator computes sooner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from graphopt.costs.elements import tiled_complex_ns, tiled_ns
from graphopt.hlo import Graph
from graphopt.hlo.graph.layouts import is_guarded
from graphopt.hlo.graph.tiled import is_tiled
from graphopt.hlo.module.proto import DTYPE_BYTES
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step


def apply(context: Context) -> Edit | None:
    """Chooses the loop generator for elementwise kernels, where that saves a part of the program's time."""
    graph, decisions, code = context.graph, context.decisions, CODE["loop-kernel"]
    chosen, saved = [], 0.0
    for root in np.flatnonzero(context.masks.restructure[:, code]).tolist():
        unit = graph.units[decisions.unit[root]]
        if decisions.fuse[root] or decisions.join[root] or unit.kind is not UnitKind.LOOP:
            continue
        if context.is_inside_native(root):
            continue
        members = context.model.members(decisions.fuse, root)
        if not is_tiled(graph, root, members):
            continue
        if is_guarded(graph, root, members, int(decisions.unit[root])):
            continue
        saved_ns = _saved_ns(context, root, members)
        if saved_ns > 0.0:
            chosen.append(root)
            saved += saved_ns / unit.threads * context.executions(root)
    wanted = decisions.copy()
    wanted.restructure[chosen] = code
    return context.edit(wanted, saved, f"{len(chosen)} kernels by the loop code generator")


def _saved_ns(context: Context, root: int, members: Sequence[int]) -> float:
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
    summary="Kernels of elementwise operations come from XLA's loop code generator, not from its tiled one.",
    apply=apply,
    after=("one pass outputs", "one core", "short reductions"),
    min_saved_ns=500.0,
    min_saved_share=0.01,
)
