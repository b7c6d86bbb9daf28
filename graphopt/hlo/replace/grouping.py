"""Which clusters new operations form: what `graphopt.hlo.replace.apply` makes of bare instructions."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.decisions import Decisions, Masks
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.legal.rules import make_masks
from graphopt.hlo.module.layouts import merges_dimensions
from graphopt.hlo.module.opcodes import OP_BY_NAME, OpKind
from graphopt.hlo.replace.chains import group_chains
from graphopt.hlo.restructure.writing.blocks import ModuleEditor
from graphopt.machine import UnitKind

MAX_REPEATED_COST: Final = 8.0
"""A new value that costs so many operations per element from scalars is computed by every reader."""

PARALLEL_ELEMENTS: Final = 1 << 15
"""A new loop over so many elements is split over all cores."""

_NEVER_GROUPED: Final = frozenset(
    {"dynamic-update-slice", "copy", "reduce-window", "gather", "dot"}
)


def group(
    graph: Graph, fresh: NDArray[np.bool_], editor: ModuleEditor
) -> tuple[Decisions, NDArray[np.bool_]]:
    """XLA's decisions, with new operations fused into their only reader, and cheap ones into all.

    Args:
        graph: after the replacements, all new operations bare.
        fresh: bool [N]; the new operations.
        editor: that wrote them; says which form kernels of their own, and which none.

    Returns:
        the decisions, and bool [N]: old nodes whose decisions were changed for the new ones beside them.
    """
    decisions = graph.default.copy()
    masks = make_masks(graph, replacements=False)
    allowed = masks.fuse[:, 1]
    widest = max(range(len(graph.units)), key=lambda i: _loop_threads(graph, i))
    large = fresh & (graph.elements >= PARALLEL_ELEMENTS) & masks.unit[:, widest]
    decisions.unit[large] = widest
    cost = _cost_from_scalars(graph)
    sums = [False] * len(graph)  # True where a node would add something up for each of its elements
    for node in np.flatnonzero(fresh & allowed).tolist():
        op, readers = graph.ops[node], graph.user_lists[node]
        inside = (o for o in graph.operand_lists[node] if decisions.fuse[o])
        sums[node] = op.name == "reduce" or any(sums[operand] for operand in inside)
        if op.name in _NEVER_GROUPED or (op.name == "reduce" and graph.elements[node] > 1):
            continue
        if sums[node] and any(graph.elements[r] > graph.elements[node] for r in readers):
            continue
        if len(readers) <= 1 or (cost[node] <= MAX_REPEATED_COST and not op.expensive):
            decisions.fuse[node] = True
    decisions.fuse[fresh & _is_number(graph)] = True
    changed = group_chains(graph, masks, _written_as(graph, editor.chained), fresh, decisions)
    large = changed & (graph.elements >= PARALLEL_ELEMENTS) & masks.unit[:, widest]
    decisions.unit[large] = widest
    decisions.fuse[_written_as(graph, editor.alone) & masks.fuse[:, 0]] = False
    decisions.fuse[_written_as(graph, editor.fused) & allowed] = True
    _leave_views(graph, masks, fresh, decisions)
    return decisions, changed


def _is_number(graph: Graph) -> NDArray[np.bool_]:
    """bool [N]; constants that are no arrays.

    Every kernel has its own, as XLA has it: LLVM must see by how much is shifted, and each that is left in
    memory takes some 70 ns of every call.
    """
    return np.asarray((graph.opcode == OP_BY_NAME["constant"].code) & (graph.elements == 1))


def _written_as(graph: Graph, instructions: set[tuple[int, int]]) -> NDArray[np.bool_]:
    """bool [N]; nodes that some instructions are."""
    instances = graph.source.instances if instructions else [()] * len(graph)
    return np.array([any(i in instructions for i in own) for own in instances], np.bool_)


def _leave_views(
    graph: Graph, masks: Masks, fresh: NDArray[np.bool_], decisions: Decisions
) -> None:
    """Kernels end before dimensions are merged: inside, that takes divisions, which do not vectorise."""
    shapes = graph.source.shapes
    for node in np.flatnonzero(fresh & ~decisions.fuse).tolist():
        if graph.ops[node].name != "bitcast":
            continue
        (operand,) = graph.operand_lists[node]
        merges = merges_dimensions(shapes[operand], shapes[node])
        if merges and graph.ops[operand].kind is OpKind.ELEMENTWISE and masks.fuse[operand, 0]:
            decisions.fuse[operand] = False


def _cost_from_scalars(graph: Graph) -> list[float]:
    """Operations per element of nodes that depend on nothing but scalars and views; else infinite."""
    out: list[float] = []
    for node, op in enumerate(graph.ops):
        if op.kind is OpKind.STRUCTURE or (graph.elements[node] == 1 and op.kind is OpKind.RUNTIME):
            out.append(0.0 if graph.elements[node] <= 1 else np.inf)
            continue
        if op.kind not in (OpKind.ELEMENTWISE, OpKind.INDEXED) or op.name == "copy":
            out.append(0.0 if graph.elements[node] == 1 else np.inf)
            continue
        total = op.cost
        for operand in graph.operand_lists[node]:
            total += out[operand] if graph.elements[operand] > 1 else min(out[operand], 4.0)
        out.append(total)
    return out


def _loop_threads(graph: Graph, index: int) -> int:
    unit = graph.units[index]
    return unit.threads if unit.kind is UnitKind.LOOP else 0
