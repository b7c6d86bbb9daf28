"""Kernels of elementwise operations from XLA's loop code generator instead of its tiled one.

XLA:CPU tries its tiled generator first. For what that takes, elementwise operations without broadcasts, it
copies tiles of at most 16 elements through the stack and divides for the place of each; LLVM vectorises
plain loops over the same arrays to a third of the time and less. An operation at the root that only the
loop generator knows, and that changes nothing, moves a kernel there: a ``bitcast-convert`` to its own type.
It is elementwise, so buffers are shared as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from graphopt.hlo.ops import OpKind
from graphopt.hlo.restructure.sites import Candidate
from graphopt.hlo.schema import DType
from graphopt.machine import UnitKind

if TYPE_CHECKING:
    from graphopt.hlo.graph import Graph

MIN_ELEMENTS: Final = 1024
"""Smallest kernel that is written for the loop generator: below, both take the same time."""

RULES: Final = {
    "small-kernel": "there is nothing to gain in a kernel of so few elements",
    "not-tiled": "it is no kernel that XLA computes with its tiled code generator",
}

_TYPES: Final = frozenset(
    {
        DType.PRED, DType.F16, DType.BF16, DType.F32, DType.F64,
        DType.S8, DType.S16, DType.S32, DType.S64,
    }
)  # fmt: skip
_OTHER_GENERATOR: Final = frozenset(
    "bitcast-convert complex copy count-leading-zeros imag popcnt real round-nearest-afz "
    "round-nearest-even shift-left shift-right-arithmetic shift-right-logical sign".split()
)
_VIEWS: Final = frozenset({"bitcast", "iota", "reshape"})


def forbids(candidate: Candidate) -> str | None:
    """Why a node is not the root of a kernel that XLA's tiled generator computes."""
    graph, root = candidate.graph, candidate.node
    if graph.elements[root] < MIN_ELEMENTS:
        return "small-kernel"
    unit = graph.units[graph.default.unit[root]]
    if graph.default.fuse[root] or graph.source.bare[root] or unit.kind is not UnitKind.LOOP:
        return "not-tiled"
    if graph.ops[root].name in _VIEWS and not any(graph.default.fuse[candidate.operands]):
        return "not-tiled"  # another name for an array in memory
    members, seen = [root], {root}
    for node in members:
        if not _is_tiled(graph, node):
            return "not-tiled"
        new = [o for o in graph.operand_lists[node] if graph.default.fuse[o] and o not in seen]
        seen.update(new)
        members += new
    return None


def is_tiled(graph: Graph, root: int, members: Iterable[int]) -> bool:
    """True for a kernel of some size that the tiled generator takes, and that keeps the order of elements.

    Args:
        graph: of the program.
        root: of the kernel.
        members: all its nodes.
    """
    large = bool(graph.elements[root] >= MIN_ELEMENTS)
    return large and all(_is_tiled(graph, node) for node in members)


def _is_tiled(graph: Graph, node: int) -> bool:
    """True for operations that the tiled generator takes, those that change the order of elements aside."""
    op, dtype = graph.ops[node], int(graph.dtype[node])
    if op.name == "constant":
        return int(graph.elements[node]) == 1
    if dtype not in _TYPES:
        return False
    return op.name in _VIEWS or (op.kind is OpKind.ELEMENTWISE and op.name not in _OTHER_GENERATOR)


OPCODES: Final = frozenset(
    "abs acos add and asin atan2 bitcast cbrt ceil clamp compare convert cosine divide erf exponential "
    "exponential-minus-one floor log log-plus-one logistic maximum minimum multiply negate not or power "
    "remainder reshape rsqrt select sine sqrt subtract tan tanh xor".split()
)
"""Roots of such kernels."""
