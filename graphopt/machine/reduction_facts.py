"""What reductions cost on one kind of CPU: the part of `graphopt.machine.CpuCosts` about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from graphopt.machine import cost_tables as tables
from graphopt.machine.facts import fact

RATES: Final = "python -m benchmarks.rates"
ROWS: Final = "python -m benchmarks.rows"
COLUMNS: Final = f"{ROWS} --columns"
REDUCTIONS: Final = "python -m benchmarks.kernels --reductions"
PLACES: Final = f"{ROWS} --places"
NATIVE: Final = "python -m benchmarks.native_operations"


@dataclass(frozen=True)
class ReductionFacts:
    """Costs of reductions; nanoseconds on one core unless a unit says otherwise."""

    sum_rows_ns: float = fact(
        1.0 / 12.0, "ns per element", "A reduction of rows that vectorise", RATES
    )
    short_row: int = fact(8, "elements", "Rows up to this length vectorise", RATES)
    unrolled_row: int = fact(96, "elements", "Rows longer than this vectorise", RATES)
    unrolled_rows_ns: tuple[float, float] = fact(
        (0.14, 0.0065),
        "ns",
        "Rows between, unrolled: an element, and more per element of a row",
        RATES,
    )
    nested_rows_ns: float = fact(
        0.2, "ns per element", "Reductions of long rows and other dimensions at once", RATES
    )
    extreme_rows_ns: float = fact(
        0.15,
        "ns per element",
        "A maximum or minimum of long rows of floats in a loop kernel",
        REDUCTIONS,
    )
    unrolled_columns: int = fact(32, "elements", "Reductions of so many rows vectorise", RATES)
    reduce_ns: float = fact(
        0.7, "ns per element", "Reductions over dimensions that do not lie together", RATES
    )
    complex_reduce_ns: float = fact(
        1.5, "ns per element", "Combiners of several operations, such as a maximum's place", PLACES
    )
    narrow_complex_ns: float = fact(
        2.2,
        "ns per element",
        "The same more in native code, along columns of rows that fill no vector",
        PLACES,
    )
    library_reduction_ns: float = fact(800.0, "ns", "A reduction by the kernel library", RATES)
    library_element_ns: float = fact(0.11, "ns per element", "An element there", RATES)
    library_function_ns: float = fact(
        0.4, "ns per element", "A function of an element there, such as a sine", NATIVE
    )
    library_functions_ns: Mapping[str, tuple[float, float]] = fact(
        tables.LIBRARY_FUNCTIONS,
        "ns per element",
        "The same of those that it computes sooner than loops do, in single precision and in double",
        COLUMNS,
    )
    library_run_ns: float = fact(2.4, "ns", "A run of elements that lie together, there", RATES)
    library_split: int = fact(1 << 16, "elements", "From here it uses two cores", RATES)
    library_split_ns: float = fact(8_000.0, "ns", "Handing over half of that work", RATES)
    tree_window_ns: float = fact(
        0.5, "ns per element", "A reduce-window's scalar code that a tree of sums saves", RATES
    )
    tree_copied_ns: float = fact(0.2, "ns per element", "Copies and their sums, saved too", RATES)
    native_tree_ns: float = fact(
        0.2, "ns per element", "What a tree saves in native code, where sums wait for each addition"
    )

    row_sum_ns: float = fact(
        0.2,
        "ns per element",
        "A sum of a row of floats in native code, where each waits for the last",
        ROWS,
    )
    row_sum_least_ns: float = fact(10.0, "ns per row", "The same of short rows, at least", ROWS)
    row_extreme_ns: float = fact(
        0.8, "ns per element", "A maximum or minimum of a row of floats there", ROWS
    )
    sliced_ns: float = fact(0.08, "ns per element", "Either in slices, combined first", ROWS)
    sliced_row_ns: float = fact(10.0, "ns per row", "The last slice of either", ROWS)
    column_ns: float = fact(
        0.3, "ns per element and array", "A reduction along columns there, of each array read", ROWS
    )
    far_column_ns: float = fact(
        0.6, "ns per element and array", "The same of arrays beyond the first cache", ROWS
    )
    sliced_column_ns: float = fact(
        0.15, "ns per element", "Such a reduction in slices, written to memory first", ROWS
    )
    sliced_kernel_ns: float = fact(
        0.085, "ns per element", "The same by loop kernels, of an array that is in memory", COLUMNS
    )
    crowded_kernel_ns: float = fact(
        0.2,
        "ns per element",
        "The same of rows that share a few places of the first cache",
        COLUMNS,
    )
