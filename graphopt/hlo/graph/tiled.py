"""Which kernels XLA:CPU computes with its tiled code generator, and what is written for them instead.

XLA tries the tiled generator first. For what that takes, elementwise operations without broadcasts, it
copies tiles of at most 16 elements through the stack; LLVM vectorises plain loops over the same arrays to
half of the time where tiles are narrow, and with older versions everywhere. Only of tiles it makes vector
code for quotients of whole numbers. Of tiles of complex numbers, which the generator of jaxlib 0.11 takes,
it makes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import DTYPE_BYTES, DType

MIN_ELEMENTS: Final = 1024
"""Smallest kernel that is written for the loop generator: below, both take the same time."""

VIEWS: Final = frozenset({"bitcast", "iota", "reshape"})
"""Operations that are no arithmetic and that the tiled generator takes."""

TILE_BYTES: Final = 64
"""How far a tile extends along a dimension, at most."""

_REORDERING: Final = frozenset({"copy", "transpose"})
"""Operations that it takes and that change the order of elements."""

_TYPES: Final = frozenset(
    {
        DType.PRED, DType.F16, DType.BF16, DType.F32, DType.F64,
        DType.S8, DType.S16, DType.S32, DType.S64, DType.C64, DType.C128,
    }
)  # fmt: skip
_COMPLEX: Final = frozenset({DType.C64, DType.C128})
_OTHER_GENERATOR: Final = frozenset(
    "bitcast-convert copy count-leading-zeros popcnt round-nearest-afz "
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


def holds_complex(graph: Graph, members: Iterable[int]) -> bool:
    """True for a kernel that computes complex numbers, or from them."""
    return any(
        int(graph.dtype[node]) in _COMPLEX
        or any(int(graph.dtype[operand]) in _COMPLEX for operand in graph.operand_lists[node])
        for node in members
    )


def may_be_one_tile(graph: Graph, members: Sequence[int], operands: Iterable[int]) -> bool:
    """True for a kernel that the tiled generator may compute as a single tile.

    That of jaxlib 0.11 does not split a tile: in a kernel of several parts, every part computes all of it.
    One that writes over its operand is applied several times. Such a kernel must have one part.

    Args:
        graph: of the program.
        members: nodes of the kernel, its root last.
        operands: what it reads.
    """
    if not all(_may_take(graph, node) for node in members):
        return False
    sizes = [DTYPE_BYTES.get(int(graph.dtype[node]), 1) for node in (*members, *operands)]
    return all(extent <= TILE_BYTES // min(sizes) for extent in graph.dim_lists[members[-1]])


def _may_take(graph: Graph, node: int) -> bool:
    """True for all that the tiled generator of some jaxlib takes."""
    op = graph.ops[node]
    if op.name == "constant":
        return int(graph.elements[node]) == 1
    return op.kind is OpKind.ELEMENTWISE or op.name in VIEWS or op.name in _REORDERING


def _takes(graph: Graph, node: int) -> bool:
    """True for operations that the tiled generator takes, those that change the order of elements aside."""
    op, dtype = graph.ops[node], int(graph.dtype[node])
    if op.name == "constant":
        return int(graph.elements[node]) == 1
    if dtype not in _TYPES:
        return False
    return op.name in VIEWS or (op.kind is OpKind.ELEMENTWISE and op.name not in _OTHER_GENERATOR)
