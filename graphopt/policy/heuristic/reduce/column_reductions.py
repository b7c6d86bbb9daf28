"""Reductions along columns, which the kernel library and loops go through slowly, are made in slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from graphopt.costs.elements import library_reduced_ns, sooner_by_library_ns
from graphopt.costs.rows import odd_rows_ns
from graphopt.costs.sliced_reductions import SLICED, down_columns_ns, sliced_kernels_ns
from graphopt.hlo.graph.layouts import innermost
from graphopt.hlo.graph.walks import roots_around
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.reduce_windows import source_node
from graphopt.hlo.restructure.sites import Candidate
from graphopt.machine import Unit, UnitKind, unit_index
from graphopt.policy.heuristic.support.context import Context
from graphopt.policy.heuristic.support.edit import Edit
from graphopt.policy.heuristic.support.step import Step, limit


@dataclass(frozen=True)
class Limits:
    """Judgements of this step.

    Larger arrays wait for memory in any form, and the library shares them among the cores.
    """

    share: float = limit(0.7, "of the time as it is", "below it a reduction is made in slices")
    elements: int = limit(2048, "elements", "shorter reductions gain nothing")


LIMITS: Final = Limits()

_LONGER: Final = frozenset({"convolution", "dot", "reduce", "reduce-window"})
"""Operations that read more than they compute."""

_TYPES: Final = frozenset({DType.F32, DType.F64})
"""Element types whose vector operations are single instructions."""


@dataclass(frozen=True)
class _Form:
    """A reduction in slices.

    Attributes:
        root: of its kernel.
        node: the reduction.
        apart: the fused value that slices are read from, to be written to memory; None if it is there.
        saved_ns: nanoseconds that it takes less.
    """

    root: int
    node: int
    apart: int | None
    saved_ns: float


def apply(context: Context) -> Edit | None:
    """Makes reductions along columns in slices where those are clearly faster than what is decided."""
    graph = context.graph
    loop = unit_index(graph.units, UnitKind.LOOP)
    single = next((i for i, u in enumerate(graph.units) if _is_single(u)), loop)
    wanted = context.decisions.copy()
    saved = 0.0
    for node in np.flatnonzero(context.masks.restructure[:, CODE[SLICED]]).tolist():
        form = _form(context, node)
        if form is None or not context.masks.unit[form.root, single]:
            continue
        wanted.restructure[node] = CODE[SLICED]
        wanted.unit[form.root] = single
        if form.apart is not None:
            wanted.fuse[form.apart] = False
            wanted.unit[form.apart] = loop
        saved += form.saved_ns * context.executions(form.root)
    return context.edit(wanted, saved, "reductions along columns in slices")


def _is_single(unit: Unit) -> bool:
    return unit.kind is UnitKind.LOOP and unit.threads == 1


def _form(context: Context, node: int) -> _Form | None:
    """The form in slices of a reduction; None where it is not clearly faster."""
    graph, costs = context.graph, context.costs
    root = _kernel(context, node)
    if root is None or not _is_along_columns(context, node):
        return None
    fuse, source = context.decisions.fuse, source_node(Candidate(graph, node))
    unit = graph.units[context.decisions.unit[root]]
    by_library = unit.kind is UnitKind.LIBRARY
    sliced = sliced_kernels_ns(graph, node, costs) + (root != node) * costs.thunk_ns
    if fuse[source]:
        sliced += _written_ns(context, source, by_library)
    if by_library:
        present = library_reduced_ns(graph, node, costs)
    else:
        present = down_columns_ns(graph, source, fuse, costs) / unit.threads
    if sliced >= LIMITS.share * present:
        return None
    return _Form(root, node, source if fuse[source] else None, present - sliced)


def _written_ns(context: Context, source: int, by_library: bool) -> float:
    """Nanoseconds that a value takes longer in a kernel of its own than inside the reduction.

    The library writes such values to memory too, a part at a time; it computes some functions sooner, and
    rows that are no vector code in loop kernels.
    """
    graph, costs, fuse = context.graph, context.costs, context.decisions.fuse
    inside = context.model.members(fuse, source)
    if not by_library:
        return costs.thunk_ns + float(graph.nbytes[source]) / costs.cached_bytes_per_ns
    functions = sum(sooner_by_library_ns(graph, node, costs) for node in inside)
    return costs.thunk_ns + functions + odd_rows_ns(graph, source, inside, costs)


def _kernel(context: Context, node: int) -> int | None:
    """The root of the only kernel that computes a reduction, if it is that kernel's work."""
    graph, decisions = context.graph, context.decisions
    roots = roots_around(graph, decisions.fuse, node)
    if len(roots) != 1 or context.is_inside_native(node):
        return None
    (root,) = roots
    members = context.model.members(decisions.fuse, root)
    alone = sum(graph.ops[member].name in _LONGER for member in members) == 1
    known = graph.units[decisions.unit[root]].kind in (UnitKind.LIBRARY, UnitKind.LOOP)
    same = graph.elements[node] == graph.elements[root]
    return root if alone and known and same and not decisions.restructure[node] else None


def _is_along_columns(context: Context, node: int) -> bool:
    """True for columns of many rows, of an array that stays in a cache and may be written there.

    A window in front of the reduction is left out, if nobody else reads it and it is no part of a call.
    """
    graph, costs = context.graph, context.costs
    source, operand = source_node(Candidate(graph, node)), graph.operand_lists[node][0]
    loop = unit_index(graph.units, UnitKind.LOOP)
    reduced = graph.source.protos[node].dimensions
    written = context.masks.fuse[source, 0] and context.masks.unit[source, loop]
    return bool(
        int(graph.dtype[node]) in _TYPES
        and (source == operand or _is_own_window(context, node, operand))
        and innermost(graph, source) not in reduced
        and graph.elements[source] >= LIMITS.elements
        and graph.elements[source] > costs.unrolled_columns * graph.elements[node]
        and graph.nbytes[source] <= costs.cached_bytes
        and (written or not context.decisions.fuse[source])
    )


def _is_own_window(context: Context, node: int, window: int) -> bool:
    """True for a window that only this reduction reads, and that is written as it is, as a loop."""
    graph, decisions = context.graph, context.decisions
    loops = all(graph.units[decisions.unit[n]].kind is UnitKind.LOOP for n in (node, window))
    return loops and graph.user_lists[window] == [node] and not decisions.restructure[window]


STEP: Final = Step(
    name="column reductions",
    summary="Reductions along columns in slices, which the library and loops go through slowly.",
    apply=apply,
    after=("library normalisations",),
    min_saved_ns=500.0,
    min_saved_share=0.01,
    limits=LIMITS,
)
