"""Which elements lie together in memory. Dimensions of one element have no say in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module import backend_config
from graphopt.hlo.module.layouts import FlatForm, is_row_major, merges_dimensions
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import DTYPE_BYTES, SUB_BYTE_DTYPES

VECTOR: Final = 16
"""Rows of a multiple of so many elements leave none over."""

UNROLLED_ROW: Final = 48
"""LLVM writes out loops over rows of up to so many elements before it makes vector code, where little is
computed of each: what comes of it is scalar code in large part."""

LONG_ROW: Final = 256
"""In longer rows it does not matter what is left over."""

FEWEST_ROWS: Final = 8
"""Of so many long rows what they all read alike is repeated; with fewer that would take as long."""

MOST_REPEATED: Final = 4
"""So many arrays are repeated for one kernel."""

_VIEWS: Final = frozenset({"bitcast", "reshape", "copy"})

_WHOLE_BYTES: Final = frozenset(DTYPE_BYTES) - SUB_BYTE_DTYPES


def innermost(graph: Graph, node: int) -> int | None:
    """The dimension along which neighbours in memory differ; None for arrays of one element."""
    sizes = graph.dim_lists[node]
    layout = graph.source.shapes[node].layout.minor_to_major
    return next((dimension for dimension in layout if sizes[dimension] > 1), None)


def row(graph: Graph, node: int) -> int:
    """Elements along that dimension; 1 where there is none."""
    found = innermost(graph, node)
    return 1 if found is None else graph.dim_lists[node][found]


def divides(graph: Graph, node: int) -> bool:
    """True for a view whose elements are found in what it views by divisions."""
    shapes = graph.source.shapes
    return graph.ops[node].name == "bitcast" and merges_dimensions(
        shapes[graph.operand_lists[node][0]], shapes[node]
    )


def is_guarded(graph: Graph, root: int, members: Collection[int], unit: int) -> bool:
    """True for a kernel of the loop generator that tests for every element whether it computes it.

    Where the cores share rows, and rows have no equal parts, every part is as long as the longest, and the
    loop tests whether an element is still inside the array; the same with what concatenates along rows. LLVM
    makes no vector code of such loops. Where the place of every element takes a division it makes none of the
    whole either: nothing is lost in parts.

    Args:
        graph: of the program.
        root: of the kernel.
        members: all its nodes.
        unit: index of its execution unit.
    """
    inner, parts = innermost(graph, root), _parts(graph, root, unit)
    order = graph.source.shapes[root].layout.minor_to_major[::-1]
    along = next((n for dimension, n in zip(order, parts, strict=False) if dimension == inner), 1)
    if inner is None or along == 1 or any(divides(graph, node) for node in members):
        return False
    return bool(graph.dim_lists[root][inner] % along) or any(
        graph.ops[node].name == "concatenate" and _joins_rows(graph, node) for node in members
    )


def _parts(graph: Graph, root: int, unit: int) -> tuple[int, ...]:
    """Parts along each dimension, outermost first, that a kernel of a unit is split into."""
    if unit == graph.default.unit[root]:
        return backend_config.partitions(graph.source.config[root])
    layout = tuple(graph.source.shapes[root].layout.minor_to_major)
    dims = tuple(graph.dim_lists[root])
    return backend_config.split_outer_dimensions(dims, layout, graph.units[unit].threads)


def _joins_rows(graph: Graph, node: int) -> bool:
    inner = innermost(graph, node)
    first = graph.operand_lists[node][0]
    return inner is not None and graph.dim_lists[first][inner] != graph.dim_lists[node][inner]


def has_odd_rows(graph: Graph, node: int) -> bool:
    """True for an array of several rows that vector code does not compute whole."""
    if len(graph.dim_lists[node]) < 2:
        return False
    length = row(graph, node)
    odd = length <= UNROLLED_ROW or length % VECTOR > 0
    return odd and length < graph.elements[node] and length <= LONG_ROW


def flat_form(
    graph: Graph, root: int, members: Collection[int], operands: Collection[int]
) -> FlatForm | None:
    """Other dimensions for an elementwise kernel that scalar code computes rows of, in part; None for others.

    XLA:CPU computes an array row by row, and what does not fill a vector at the end of a row one by one; of
    short rows most of it. Where a kernel reads nothing but whole arrays and numbers, its arrays can as well
    have one dimension. Where all rows read some numbers alike, several rows become one, for which those are
    repeated.

    Args:
        graph: of the program.
        root: of the kernel.
        members: all its nodes.
        operands: what it reads from memory.
    """
    if not has_odd_rows(graph, root):
        return None
    elements = int(graph.elements[root])
    repeated = _repeated_row(graph, members, elements)
    if repeated is None:
        return None
    if not all(_fits(graph, node, elements, repeated) for node in (*members, *operands)):
        return None
    if not repeated:
        return FlatForm()
    if sum(int(graph.elements[node]) == repeated for node in operands) > MOST_REPEATED:
        return None
    times = _times(elements // repeated, repeated, row(graph, root))
    return FlatForm(repeated, times) if times else None


def is_better_flat(
    graph: Graph, root: int, members: Collection[int], operands: Collection[int]
) -> bool:
    """True for a kernel that has a `flat_form`."""
    return flat_form(graph, root, members, operands) is not None


def _repeated_row(graph: Graph, members: Iterable[int], elements: int) -> int | None:
    """Elements of what all rows of a kernel read alike, 0 if nothing; None where it reads in other orders."""
    found = set()
    for node in members:
        if _keeps_order(graph, node):
            continue
        if graph.ops[node].name != "broadcast" or int(graph.elements[node]) != elements:
            return None
        (operand,) = graph.operand_lists[node]
        dims, own = graph.dim_lists[node], graph.dim_lists[operand]
        behind = list(range(len(dims) - len(own), len(dims)))
        if list(graph.source.protos[node].dimensions) != behind:
            return None
        found.add(int(graph.elements[operand]))
    if len(found) > 1 or not all(1 < row < elements for row in found):
        return None
    return next(iter(found), 0)


@lru_cache(maxsize=4096)
def _times(rows: int, row: int, present: int) -> int:
    """How many rows become one: longer than the present ones, best of whole vectors; 0 if no number will do.

    Where LLVM writes the present rows out, what is left at the end of a long one is little.
    """
    longest = min(LONG_ROW * VECTOR, rows * row // FEWEST_ROWS)
    counts = [
        n
        for n in range(1, longest // row + 1)
        if rows % n == 0
        and max(present + 1, 2 * UNROLLED_ROW) <= n * row
        and (n * row % VECTOR == 0 or present <= UNROLLED_ROW)
    ]
    # An even number of long rows is shared among cores in equal parts.
    return min(counts, key=lambda n: (n * row % VECTOR > 0, rows // n % 2, n), default=0)


def _fits(graph: Graph, node: int, elements: int, row: int) -> bool:
    """True for a number, for an array of so many elements in row-major order, and for a repeated row."""
    if int(graph.dtype[node]) not in _WHOLE_BYTES:
        return False
    if not graph.dim_lists[node]:
        return True
    whole = int(graph.elements[node]) in (elements, row or elements)
    return whole and is_row_major(graph.source.shapes[node])


def _keeps_order(graph: Graph, node: int) -> bool:
    """True for what computes every element from the elements at its own place, and from numbers."""
    op = graph.ops[node]
    if op.name == "broadcast":
        return not graph.dim_lists[graph.operand_lists[node][0]]
    if op.name == "constant":
        return not graph.dim_lists[node]
    return op.name in _VIEWS or op.kind is OpKind.ELEMENTWISE
