"""What matrix products cost on one kind of CPU: the part of `graphopt.machine.CpuCosts` about them.

Rows are those of the result, sums run over the contracted dimension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from graphopt.machine import cost_tables as tables
from graphopt.machine.facts import fact

PRODUCTS: Final = "python -m benchmarks.rates --products"
SHARED: Final = "python -m benchmarks.rates --shared"
TALL: Final = "python -m benchmarks.rates --tall"
SUMS: Final = "python -m benchmarks.few_vectors --sums"


@dataclass(frozen=True)
class ProductFacts:
    """Costs of products; nanoseconds on one core unless a unit says otherwise."""

    runtime_call_ns: float = fact(500.0, "ns", "A call of the matrix library", PRODUCTS)
    naive_product: int = fact(
        3, "elements", "Longest dimension that XLA multiplies in loops of its own", PRODUCTS
    )
    called_product: int = fact(
        8, "elements", "Longest of a batch that calls the library for each matrix", PRODUCTS
    )
    library_matrix_ns: float = fact(
        70.0, "ns", "Each matrix of a batch in the kernel library", PRODUCTS
    )
    turned_call_ns: float = fact(600.0, "ns", "Transposing an operand in a call", PRODUCTS)
    dot_flops_per_ns: float = fact(100.0, "flops per ns", "By the library, f32", PRODUCTS)
    few_columns: int = fact(
        64, "elements", "With up to so many columns, each row has costs of its own", PRODUCTS
    )
    library_row_ns: float = fact(
        2.5, "ns per row", "A row of few columns in the kernel library, beyond the rate", PRODUCTS
    )
    library_odd_row_ns: float = fact(
        10.0, "ns per row", "The same of narrow rows whose sums are no multiple of four", PRODUCTS
    )
    runtime_element_ns: float = fact(
        0.5, "ns per element", "A left operand that the runtime multiplies by few columns", PRODUCTS
    )
    runtime_turned_ns: float = fact(1.2, "ns per element", "The same, transposed", PRODUCTS)
    shared_flops: float = fact(
        5e6, "flops", "Fewest for which the runtime uses two cores, by whole rows", SHARED
    )
    shared_rows: int = fact(192, "elements", "Fewest rows of such a product", SHARED)
    shared_columns: int = fact(60, "elements", "Fewest columns of it", SHARED)
    shared_batch_flops: float = fact(
        1e5, "flops", "Fewest of a batch for which the kernel library uses several cores"
    )
    runtime_matrix_ns: float = fact(250.0, "ns", "Each matrix of a batch in the runtime")
    runtime_slower: float = fact(
        1.15, "times", "What the runtime takes on one core of the library's time", SHARED
    )
    fast_flops_per_ns: float = fact(
        58.0, "flops per ns", "Native loops that vectorise: short sums, blocks", PRODUCTS
    )
    vector_flops_per_ns: float = fact(20.0, "flops per ns", "A matrix by a vector", PRODUCTS)
    vector_multiple: int = fact(
        4, "elements", "Rows of a matrix by a vector are fast in multiples of this", PRODUCTS
    )
    odd_vectors: float = fact(1.7, "times", "What others take, in XLA's loop", PRODUCTS)
    odd_native_vectors: float = fact(3.5, "times", "The same in native code", PRODUCTS)
    short_rows_flops_per_ns: float = fact(
        7.0, "flops per ns", "A matrix whose rows are shorter than a vector, by a vector", TALL
    )
    odd_rows_flops_per_ns: float = fact(
        11.0, "flops per ns", "The same with rows that are no multiple of a vector", TALL
    )
    long_rows_flops_per_ns: float = fact(
        30.0, "flops per ns", "The same with the rows of a turned tall matrix", TALL
    )
    plain_sum: int = fact(
        48, "elements", "Longest sum that LLVM writes out in plain loops in native code", SUMS
    )
    along_result_ns: float = fact(
        4.0, "ns per result", "A sum of products along two rows in native code", SUMS
    )
    along_flops_per_ns: float = fact(55.0, "flops per ns", "The products of it", SUMS)
    along_sum: int = fact(56, "elements", "Longest such sum that is scalar code, written out", SUMS)
    along_short_flops_per_ns: float = fact(6.0, "flops per ns", "The products of those", SUMS)
    narrow_columns: int = fact(16, "elements", "Fewer columns are narrow", PRODUCTS)
    narrow_flops_per_ns: float = fact(12.0, "flops per ns", "Narrow short sums", PRODUCTS)
    column_flops_per_ns: float = fact(
        5.0, "flops per ns", "Most of a column where they are narrow, in loops", PRODUCTS
    )
    narrow_blocks_flops_per_ns: float = fact(5.5, "flops per ns", "Narrow blocks", PRODUCTS)
    batched_flops_per_ns: float = fact(
        6.0, "flops per ns", "Plain loops over a batch of narrow or turned matrices", PRODUCTS
    )
    reduced_result_ns: float = fact(
        0.3, "ns per result", "A batch as a multiplication and a reduction", PRODUCTS
    )
    reduced_flops_per_ns: float = fact(8.0, "flops per ns", "The products of it", PRODUCTS)
    reduced_rows_flops_per_ns: float = fact(
        33.0, "flops per ns", "The same with columns that lie together and short sums", PRODUCTS
    )
    odd_columns_flops_per_ns: float = fact(
        11.0, "flops per ns", "The same as one loop kernel, columns no multiple of four", PRODUCTS
    )
    least_columns: int = fact(8, "elements", "So many columns count as together", PRODUCTS)
    slow_flops_per_ns: float = fact(
        3.0, "flops per ns", "Plain loops whose sum is a scalar loop", PRODUCTS
    )
    long_flops_per_ns: float = fact(
        1.7, "flops per ns", "The same beyond the first-level cache", PRODUCTS
    )
    long_sum: int = fact(128, "elements", "Longer sums leave that cache", PRODUCTS)
    moved_ns: float = fact(
        0.45, "ns per element", "An operand brought into another order", PRODUCTS
    )
    product_part_ns: float = fact(
        30.0, "ns", "Each of the loops that a product in blocks becomes", PRODUCTS
    )
    slower_products: Mapping[str, float] = fact(
        tables.SLOWER_PRODUCTS, "times", "How much longer than in f32", PRODUCTS
    )
