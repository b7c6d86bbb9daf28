"""Which matrix products XLA computes on several cores, and what a batch of them takes.

XLA has two ways to call a product: its kernel library (XNNPACK), and its runtime (Eigen). Each decides by
itself how many threads take part, and neither says so in the module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from graphopt.hlo.restructure.rows.dot_blocks import Product
from graphopt.machine import CpuCosts

_CORES: Final = 2
"""That a single product counts on, whatever the machine has: the runtime's tasks are large."""

_FIRST_ROWS: Final = 16
_SIDE: Final = 64
_LONGEST: Final = 1024
"""Longest sum that counts for the size of a task, in elements."""

_LARGE: Final = 1 << 16
"""Elements that a task reads, or writes, at least."""


@dataclass(frozen=True)
class Sharing:
    """How many threads take part in a product, and what the library and the runtime take then.

    Attributes:
        by_library: several, where the kernel library computes it.
        by_runtime: several, where the runtime does.
        library_ns: nanoseconds of a batch that the library shares, waking its threads included; None for
            other products.
        runtime_ns: nanoseconds by the runtime of what may be faster there: of a batch, one matrix after the
            other, and of a single product that it shares and the library does not; None for others.
    """

    by_library: bool = False
    by_runtime: bool = False
    library_ns: float | None = None
    runtime_ns: float | None = None


UNKNOWN: Final = Sharing(by_library=True, by_runtime=True)
"""Of products of a form that is not looked into."""


def sharing_of(product: Product, work: float, threads: int, costs: CpuCosts) -> Sharing:
    """How many threads take part in a product.

    Args:
        product: of matrices; a matrix by a vector XLA multiplies in a loop on one core.
        work: multiplications and additions of all matrices.
        threads: that the library and the runtime have.
        costs: of the machine.
    """
    if threads < 2 or (product.batch == 1 and 1 in (product.rows, product.columns)):
        return Sharing()
    wide = product.columns >= costs.shared_columns and product.rows >= costs.shared_rows
    by_runtime = wide and work >= product.batch * costs.shared_flops
    library_ns = work / costs.dot_flops_per_ns
    runtime_ns = costs.runtime_slower * library_ns
    if product.batch == 1:
        by_library = library_tasks(product) > 1
        shared_ns = costs.runtime_call_ns + runtime_ns / _CORES
        gains = by_runtime and not by_library
        return Sharing(by_library, by_runtime, runtime_ns=shared_ns if gains else None)
    by_library = work >= costs.shared_batch_flops
    library_ns /= max(1, min(threads, product.batch))
    library_ns += costs.handover_ns + product.batch * costs.library_matrix_ns
    runtime_ns += product.batch * costs.runtime_matrix_ns
    square = min(product.rows, product.columns) >= costs.least_columns
    return Sharing(
        by_library,
        by_runtime,
        library_ns if by_library else None,
        runtime_ns if square else None,
    )


def library_tasks(product: Product) -> int:
    """Tasks into which the kernel library cuts a single product: groups of rows, at first 16, then doubled.

    They are doubled until the result of a task has a side of 64 where it can, and what it reads or what it
    writes is large enough (XNNPACK, ynnpack/subgraph/dot.cc, ``choose_split_factors``).
    """
    inner, columns = min(product.inner, _LONGEST), product.columns
    least = min(product.rows, _SIDE) * min(columns, _SIDE)
    rows = min(product.rows, _FIRST_ROWS)
    while rows < product.rows:
        large = (rows + columns) * inner >= _LARGE or rows * columns >= _LARGE
        if large and rows * columns >= least:
            break
        rows *= 2
    return math.ceil(product.rows / max(rows, 1))
