"""Which kernels XLA:CPU computes with its tiled code generator, to be written for its loop generator instead.

XLA tries the tiled generator first. For what that takes, elementwise operations without broadcasts, it
copies tiles of at most 16 elements through the stack and divides for the place of each; LLVM vectorises
plain loops over the same arrays to a third of the time and less.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import DType

MIN_ELEMENTS: Final = 1024
"""Smallest kernel that is written for the loop generator: below, both take the same time."""

VIEWS: Final = frozenset({"bitcast", "iota", "reshape"})
"""Operations that are no arithmetic and that the tiled generator takes."""

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


def is_tiled(graph: Graph, root: int, members: Iterable[int]) -> bool:
    """True for a kernel of some size that the tiled generator takes, and that keeps the order of elements.

    Args:
        graph: of the program.
        root: of the kernel.
        members: all its nodes.
    """
    large = bool(graph.elements[root] >= MIN_ELEMENTS)
    return large and all(_takes(graph, node) for node in members)


def _takes(graph: Graph, node: int) -> bool:
    """True for operations that the tiled generator takes, those that change the order of elements aside."""
    op, dtype = graph.ops[node], int(graph.dtype[node])
    if op.name == "constant":
        return int(graph.elements[node]) == 1
    if dtype not in _TYPES:
        return False
    return op.name in VIEWS or (op.kind is OpKind.ELEMENTWISE and op.name not in _OTHER_GENERATOR)
