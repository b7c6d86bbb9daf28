"""Kernels from XLA's loop code generator instead of its tiled one (see `graphopt.hlo.graph.tiled`).

An operation at the root that only the loop generator knows, and that changes nothing, moves a kernel there:
a ``bitcast-convert`` to its own type, of complex numbers of the real part. It is elementwise, so buffers
are shared as before. Kernels of odd rows, in native loops too, are written over one dimension, or over rows
of several rows (see `graphopt.hlo.graph.layouts.flat_form`).
"""

from __future__ import annotations

from typing import Final

from graphopt.hlo.graph.layouts import has_odd_rows, is_better_flat
from graphopt.hlo.graph.tiled import MIN_ELEMENTS, VIEWS, is_tiled
from graphopt.hlo.graph.walks import fused_into, inputs_of
from graphopt.hlo.restructure.sites import Candidate
from graphopt.machine import UnitKind

RULES: Final = {
    "small-kernel": "there is nothing to gain in a kernel of so few elements",
    "not-tiled": "it is no kernel that XLA computes with its tiled code generator",
}

OPCODES: Final = frozenset(
    "abs acos add and asin atan2 bitcast cbrt ceil clamp compare complex convert cosine divide erf "
    "exponential exponential-minus-one floor imag log log-plus-one logistic maximum minimum multiply negate "
    "not or power real remainder reshape rsqrt select sine sqrt subtract tan tanh xor".split()
)
"""Roots of such kernels."""


def forbids(candidate: Candidate) -> str | None:
    """Why a node is not the root of a kernel that XLA's tiled generator computes, or one of odd rows."""
    graph, root = candidate.graph, candidate.node
    fuse = graph.default.fuse
    unit = graph.units[graph.default.unit[root]]
    if fuse[root] or graph.source.bare[root] or unit.kind is not UnitKind.LOOP:
        return "not-tiled"
    if graph.ops[root].name in VIEWS and not any(fuse[candidate.operands]):
        return "not-tiled"  # another name for an array in memory
    small = graph.elements[root] < MIN_ELEMENTS
    if small and not has_odd_rows(graph, root):
        return "small-kernel"
    members = fused_into(graph, fuse, root)
    if is_better_flat(graph, root, members, inputs_of(graph, members)):
        return None
    if small:
        return "small-kernel"
    return None if is_tiled(graph, root, members) else "not-tiled"
