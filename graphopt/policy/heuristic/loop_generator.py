"""Kernels that XLA's tiled code generator computes, and that its loop generator computes sooner."""

from __future__ import annotations

from typing import Final

import numpy as np

from graphopt.costs.model import CostModel
from graphopt.hlo import Decisions, Graph
from graphopt.hlo.graph.tiled import is_tiled
from graphopt.hlo.restructure import CODE
from graphopt.machine import UnitKind
from graphopt.policy.heuristic.native import inside_native

TILE: Final = 16
TILE_NS: Final = 2.5
TILED_ELEMENT_NS: Final = 0.1
"""Elements of the widest tile; nanoseconds beyond those of a plain loop per tile, and per element."""


def loop_kernels(graph: Graph, model: CostModel, decisions: Decisions) -> None:
    """Chooses the loop generator for elementwise kernels, where that saves a part of the program's time.

    Args:
        graph: of the program.
        model: its costs.
        decisions: changed in place.
    """
    code = CODE["loop-kernel"]
    candidates = np.flatnonzero(graph.masks.restructure[:, code]).tolist()
    native = inside_native(graph, model, decisions) if candidates else set()
    chosen, saved = [], 0.0
    for root in candidates:
        unit = graph.units[decisions.unit[root]]
        if decisions.fuse[root] or decisions.join[root] or unit.kind is not UnitKind.LOOP:
            continue
        if int(graph.computation[root]) in native:
            continue
        if is_tiled(graph, root, model.members(decisions.fuse, root)):
            chosen.append(root)
            saved += _saved_ns(graph, root) / unit.threads * float(graph.executions[root])
    if saved > model.rewriting_ns:
        decisions.restructure[chosen] = code


def _saved_ns(graph: Graph, root: int) -> float:
    """Nanoseconds that the loop generator saves on one core."""
    tiles = float(graph.elements[root]) / _tile_width(graph, root)
    return TILE_NS * tiles + TILED_ELEMENT_NS * float(graph.elements[root])


def _tile_width(graph: Graph, root: int) -> int:
    """Elements of a tile along the dimension that lies together in memory: a power of two that divides it."""
    minor = graph.source.shapes[root].layout.minor_to_major
    size = graph.dim_lists[root][minor[0]] if minor else 1
    return min(TILE, size & -size)
