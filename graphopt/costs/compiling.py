"""How much longer XLA compiles kernels as native code than by its own generators.

Its own kernels XLA compiles one by one, equal ones once, and for matrix products it calls a library. Native
code is one function, in which everything is written as often as it runs. LLVM writes short loops out in full
there, and a function such as exp is some thirty instructions in every copy: programs whose loops Python
unrolled can compile ten times as long.

The figures are rough, fitted by hand to 27 programs compiled with native code and without (``python -m
benchmarks.compile_times unrolled`` compiles ten of their kind): milliseconds of the processor on an AMD EPYC
with AVX2. What matters is their ratio to what native code saves, and slow machines take longer for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Final

from graphopt.hlo import Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.restructure.rows.dot_blocks import product_of

COPY_MS: Final = 0.1
FUNCTION_MS: Final = MappingProxyType(
    {
        "erf": 0.9, "exponential": 1.4, "exponential-minus-one": 1.6, "log": 3.0, "log-plus-one": 3.3,
        "logistic": 1.6, "rsqrt": 0.3, "tanh": 1.2,
    }
)  # fmt: skip
TERM_MS: Final = 1.1
PRODUCT_MS: Final = 0.18
"""In native code: an operation in each copy of its loop, functions that LLVM knows in vectors, each value
that one result of a reduction adds up, and each term of a row of a product."""

OWN_KERNEL_MS: Final = 6.5
OWN_OPERATION_MS: Final = 0.6
OWN_FUNCTIONS: Final = 2.0
OWN_TERMS: Final = 1.6
"""By XLA's generators: a kernel, each operation in it, and how many times as long functions and reductions
take."""

WRITTEN_OUT: Final = 40
VECTORS_WRITTEN_OUT: Final = 60
LANES: Final = 8
COPIES: Final = 5
"""Elements of the longest loop that is written out one by one, vectors of so many lanes of the longest that
is written out in vectors, and copies of the body in longer ones."""

TERMS: Final = 64
"""Values of a reduction that are written out; longer ones are loops over so many."""

UNROLLED_SUM: Final = 48
ROWS: Final = 7
"""Longest sum of products that is written out, and for how many rows at most."""

Kind = tuple[object, ...]


def kernel_kind(graph: Graph, members: Sequence[int]) -> Kind:
    """What a kernel computes, equal for kernels that XLA compiles once.

    Also for some that it does not: what reduces arrays of different lengths to one size is equal here.
    """
    return tuple(
        (graph.ops[node].name, tuple(graph.dim_lists[node]), graph.source.shapes[node].element_type)
        for node in members
    )


def copies(sizes: Sequence[int]) -> int:
    """How often LLVM writes the body of a loop over an array of these sizes."""
    rows = [size for size in sizes if size > 1] or [1]
    if prod(rows) <= WRITTEN_OUT:
        return prod(rows)
    row = rows[-1]
    if row <= WRITTEN_OUT:
        return row
    return row // LANES if row // LANES <= VECTORS_WRITTEN_OUT else COPIES


@dataclass(frozen=True)
class KernelTime:
    """Milliseconds of processor time that one kernel takes to compile.

    Attributes:
        native: as part of a native function.
        own: by XLA's generators; 0 for what calls a library.
    """

    native: float
    own: float


def kernel_time(graph: Graph, members: Sequence[int]) -> KernelTime:
    """The time of a kernel.

    Args:
        graph: of the program.
        members: nodes of the kernel.
    """
    native, own = 0.0, OWN_KERNEL_MS
    for node in members:
        op = graph.ops[node]
        if op.kind in (OpKind.STRUCTURE, OpKind.CONTROL):
            continue
        if op.name == "dot":
            native += PRODUCT_MS * _written_terms(graph, node)
            continue
        own += OWN_OPERATION_MS
        if op.name in ("reduce", "reduce-window"):
            ms, factor = TERM_MS * min(TERMS, _terms(graph, node)), OWN_TERMS
        elif op.name in FUNCTION_MS:
            ms, factor = FUNCTION_MS[op.name] * copies(graph.dim_lists[node]), OWN_FUNCTIONS
        else:
            ms, factor = COPY_MS * copies(graph.dim_lists[node]), 0.0
        native += ms
        own += factor * ms
    called = len(members) == 1 and graph.ops[members[0]].name == "dot"
    return KernelTime(native, 0.0 if called else own)


def native_extra_ms(graph: Graph, kernels: Sequence[Sequence[int]]) -> float:
    """Milliseconds of processor time that kernels take longer to compile in native code.

    Args:
        graph: of the program.
        kernels: the nodes of each.

    Returns:
        Below zero where native code compiles sooner.
    """
    own: dict[Kind, float] = {}
    native = 0.0
    for members in kernels:
        time = kernel_time(graph, members)
        native += time.native
        own[kernel_kind(graph, members)] = time.own
    return native - sum(own.values())


def _terms(graph: Graph, node: int) -> int:
    """Values that one result of a reduction, or of a window, adds up."""
    if graph.ops[node].name == "reduce-window":
        return prod(dimension.size for dimension in graph.source.protos[node].window.dimensions)
    operand = graph.operand_lists[node][0]
    return int(graph.elements[operand]) // max(1, int(graph.elements[node]))


def _written_terms(graph: Graph, node: int) -> int:
    """Terms of a product's sums that LLVM writes out; none of a longer one, which stays a loop."""
    left, right = (graph.dim_lists[operand] for operand in graph.operand_lists[node])
    product = product_of(graph.source.protos[node], left, right)
    if product is None or product.inner > UNROLLED_SUM:
        return 0
    return product.inner * min(ROWS, product.rows)
