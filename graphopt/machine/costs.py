"""What things cost on one kind of CPU: every machine fact that decisions rest on, in one table.

The values are orders of magnitude, measured on x86 with AVX-512 under jaxlib 0.10.2; windows, scatters in
loops and reshaped transposes with AVX2 under 0.11.2. Times are nanoseconds
on one core unless a unit says otherwise. Margins and limits of a step of the heuristic are no facts and
stand with the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from graphopt.machine import cost_tables as tables
from graphopt.machine.facts import check_facts, fact
from graphopt.machine.product_facts import ProductFacts
from graphopt.machine.reduction_facts import ReductionFacts

DISPATCH: Final = "python -m benchmarks.dispatch"
CALIBRATE: Final = "graphopt doctor --calibrate"
RATES: Final = "python -m benchmarks.rates"
QUOTIENTS: Final = f"{RATES} --quotients"
ROWS: Final = "python -m benchmarks.rows"
KERNELS: Final = "python -m benchmarks.kernels"
CONVOLUTIONS: Final = "python -m benchmarks.convolutions"
WINDOWS: Final = "python -m benchmarks.rates --windows"
OPERATIONS: Final = "python -m benchmarks.operations"
LAPACK: Final = "python -m benchmarks.lapack"
FUNCTIONS: Final = "python -m benchmarks.functions"
NATIVE: Final = "python -m benchmarks.native_operations"


@dataclass(frozen=True)
class CpuCosts(ReductionFacts, ProductFacts):
    """Costs on one kind of CPU; `facts` lists units and meanings, those of products and reductions first.

    Raises:
        ConfigError: a number is not finite or not positive, or one inside a table is negative.
    """

    # Calls, cores and memory.
    thunk_ns: float = fact(55.0, "ns", "Dispatch of one kernel by the thunk executor", CALIBRATE)
    short_thunk_ns: float = fact(
        22.0, "ns", "The same in sequences so short that they run one after the other", CALIBRATE
    )
    short_sequence: int = fact(8, "kernels", "Longest such sequence", DISPATCH)
    library_call_ns: float = fact(
        3000.0, "ns", "A call of the kernel library, whose worker threads take part", CALIBRATE
    )
    handover_ns: float = fact(
        15_000.0, "ns", "Handing half of a loop to the other core and waiting for it", CALIBRATE
    )
    loop_ns: float = fact(
        500.0,
        "ns",
        "One iteration of a while loop in the thunk executor, beside its kernels",
        CALIBRATE,
    )
    short_loop_ns: float = fact(25.0, "ns", "The same where its body is short", CALIBRATE)
    bytes_per_ns: float = fact(
        10.0, "bytes per ns", "Memory bandwidth of one core beyond its caches", CALIBRATE
    )
    fresh_bytes_per_ns: float = fact(
        1.3,
        "bytes per ns",
        "Writing to pages that the process has not touched yet",
        "python -m benchmarks.pages",
    )
    cached_bytes_per_ns: float = fact(
        40.0, "bytes per ns", "The same inside the second-level cache", CALIBRATE
    )
    cached_bytes: int = fact(1 << 19, "bytes", "Largest array that stays in that cache")
    call_ns: float = fact(
        24_000.0,
        "ns",
        "What a caller spends itself on one call of a jitted function, which a worker overlaps",
        DISPATCH,
    )
    buffer_ns: float = fact(
        1_600.0, "ns", "The same for each array that goes in or comes out", DISPATCH
    )
    library_on_caller_ns: float = fact(
        15_000.0,
        "ns",
        "What a call of the kernel library takes longer on the thread of the program's caller",
        DISPATCH,
    )
    opaque_on_caller_ns: float = fact(
        1_000.0, "ns", "The same of a call of LAPACK, or of a user's code", DISPATCH
    )
    split_ns: float = fact(
        15_000.0, "ns", "Handing the parts of one kernel to other threads and waiting", CALIBRATE
    )
    split_bytes: int = fact(
        1 << 18, "bytes", "Loops that move more gain from the caches of two cores"
    )
    part_bytes: int = fact(256 << 10, "bytes", "For so many XLA gives a loop another core")
    part_ns: float = fact(33_000.0, "ns", "The same in time of its work")

    # Elements of loops.
    operations_per_ns: float = fact(
        12.0, "operations per ns", "Vectorised additions; one unit of an operation's cost", RATES
    )
    scalar_operations_per_ns: float = fact(
        1.5, "operations per ns", "The same in code that does not vectorise", RATES
    )
    few_elements: int = fact(16, "elements", "Shorter loops do not vectorise", RATES)
    function_ns: Mapping[str, tuple[float, float]] = fact(
        tables.FUNCTIONS, "ns per element", "Functions in single precision and in double", RATES
    )
    integer_ns: Mapping[str, float] = fact(
        tables.INTEGERS, "ns per element", "Operations on integers", RATES
    )
    known_divisor_ns: float = fact(
        0.3, "ns per element", "A quotient of integers by a constant", QUOTIENTS
    )
    known_wide_divisor_ns: float = fact(1.0, "ns per element", "The same of 64 bits", QUOTIENTS)
    gather_ns: float = fact(0.6, "ns per element", "An element read at an index", RATES)
    turn_ns: float = fact(
        0.9, "ns per element", "A transpose that changes the order of memory", RATES
    )
    divided_turn_ns: float = fact(
        4.5, "ns per element", "The same of a reshaped array, where places are divided"
    )
    fused_operations_per_ns: float = fact(
        18.0, "operations per ns", "Vectorised operations among others: values stay in registers"
    )
    integer_operations_per_ns: float = fact(
        50.0, "operations per ns", "The same in chains of integer operations: bits and hashes"
    )
    registers: int = fact(
        2, "elements", "Values of so few stay in registers of a native function", RATES
    )
    hidden_operations: float = fact(
        2.0, "operations", "So many per element hide behind the loads of a loop"
    )
    across_ns: float = fact(1.0, "ns per element", "Reading in an order that is not memory's")
    joined_read_ns: float = fact(
        0.7,
        "ns per element",
        "Reading an array where rows of few elements are joined, as stacks are",
    )
    divided_ns: float = fact(0.2, "ns per element", "Divisions that find an element's place")
    min_row: int = fact(8, "elements", "Shortest row over which a loop with views vectorises")

    # Rows of elementwise kernels.
    row_end_ns: float = fact(
        5.0,
        "ns per row",
        "A row of an elementwise kernel that LLVM unrolls, or the end of one that does not fill a vector",
        ROWS,
    )
    row_end_function: float = fact(
        15.0, "times", "What a function of one element takes there, in scalar code", ROWS
    )

    # Windows.
    window_loop_ns: float = fact(0.8, "ns per element", "An element in a loop kernel", WINDOWS)
    window_native_ns: float = fact(0.8, "ns per element", "The same in native code", WINDOWS)
    unrolled_window: int = fact(16, "elements", "Larger windows are loops in native code", WINDOWS)
    window_long_ns: float = fact(0.8, "ns per element", "An element of those", WINDOWS)
    window_line_ns: float = fact(0.8, "ns per element", "Along one dimension, in either", WINDOWS)
    window_extreme: float = fact(
        1.0,
        "times",
        "Maxima and minima of floats beside sums, where shifted arrays are alike",
        WINDOWS,
    )
    apart_loop_ns: float = fact(0.4, "ns per element", "Windows side by side, in a loop kernel")
    apart_native_ns: float = fact(0.15, "ns per element", "The same in native code")
    shifted_ns: float = fact(
        0.2, "ns per element", "Combining an array with a shifted one, in native code", WINDOWS
    )
    shifted_loop_ns: float = fact(0.4, "ns per element", "The same in a loop kernel", WINDOWS)
    shifted_row_ns: float = fact(5.0, "ns per row", "The end of a row in either", WINDOWS)
    shifted_window: int = fact(
        2, "elements", "Smaller windows are as fast in native code as shifted arrays", WINDOWS
    )
    running_ns: float = fact(2.0, "ns per element", "A cumulative operation as a loop", WINDOWS)
    running_step_ns: float = fact(15.0, "ns", "A step of it")
    window_split_ns: float = fact(
        5_000.0, "ns", "Handing a part of a window operation to another core", WINDOWS
    )

    # Pools in other forms, on all cores; forms count elements of four bytes.
    pool_result_ns: float = fact(0.6, "ns per result", "A window of a pool by XLA", OPERATIONS)
    pool_element_ns: float = fact(0.13, "ns per element", "An element of it", OPERATIONS)
    pool_border_ns: float = fact(0.12, "ns per element", "The same more where padded", OPERATIONS)
    pool_place_ns: float = fact(
        1.5, "ns per element", "An element of a window whose winner XLA finds", OPERATIONS
    )
    pool_scatter_ns: float = fact(
        12.0, "ns per window", "A window whose gradient XLA scatters", OPERATIONS
    )
    pool_call_ns: float = fact(10_000.0, "ns", "The kernels of a pool's form", OPERATIONS)
    pool_cached_bytes: int = fact(4 << 20, "bytes", "Larger arrays are read from memory")
    pad_ns: float = fact(0.1, "ns per element", "Padding in front of shifted slices", OPERATIONS)
    pad_row_ns: float = fact(15.0, "ns per row", "The same within rows of memory", OPERATIONS)
    shift_max_ns: float = fact(0.14, "ns per element", "A shifted slice's maximum", OPERATIONS)
    shift_sum_ns: float = fact(0.1, "ns per element", "A shifted slice's sum", OPERATIONS)
    shift_place_ns: float = fact(0.15, "ns per element", "A winner among shifted ones", OPERATIONS)
    shift_spread_ns: float = fact(
        0.25, "ns per element", "Gradients of one of the windows that hold it", OPERATIONS
    )

    whole_quotient_ns: tuple[float, float] = fact(
        (1.75, 0.5), "ns per element", "Whole quotients singly and in vectors, all cores", KERNELS
    )
    reduced_functions: Mapping[str, float] = fact(
        tables.REDUCED_FUNCTIONS, "ns per element", "By the library with a reduction", OPERATIONS
    )
    wide_functions: Mapping[str, tuple[float, float, float]] = fact(
        tables.WIDE_FUNCTIONS, "ns", "Functions by XLA and in vector code, on all cores", OPERATIONS
    )
    double_functions: Mapping[str, tuple[float, float, float]] = fact(
        tables.DOUBLE_FUNCTIONS, "ns", "The same of double precision", OPERATIONS
    )

    place_ns: Mapping[str, float] = fact(
        tables.PLACES, "ns per element", "Places of maxima and minima, on all cores", OPERATIONS
    )

    # Convolutions: per multiplication, XLA's own as the fastest that was measured of their kind.
    few_channels: int = fact(
        4, "elements", "Groups of so few channels are convolved in scalar code", CONVOLUTIONS
    )
    some_channels: int = fact(
        12, "elements", "Groups of so many channels are narrow products", CONVOLUTIONS
    )
    grouped_convolution_ns: tuple[float, float, float, float] = fact(
        (2.0, 0.8, 0.3, 0.14), "ns", "XLA's in groups of one, few, some, more", CONVOLUTIONS
    )
    plain_convolution_ns: Mapping[str, float] = fact(
        tables.CONVOLUTIONS, "ns", "What ordinary ones consist of", CONVOLUTIONS
    )
    window_ns: float = fact(0.13, "ns", "XLA's gradients by weights", CONVOLUTIONS)
    grouped_window_ns: float = fact(2.4, "ns", "The same of a convolution in groups", CONVOLUTIONS)
    shifted_product_ns: float = fact(0.25, "ns", "A convolution by shifted arrays", CONVOLUTIONS)
    shifted_channels_ns: float = fact(0.13, "ns", "The same in groups of several", CONVOLUTIONS)
    shifted_sum_ns: float = fact(0.5, "ns", "Sums over products with shifted arrays", CONVOLUTIONS)
    convolution_turn_ns: float = fact(
        0.4, "ns per element", "XLA brings channels of a convolution to the end", CONVOLUTIONS
    )

    # Other forms of cumulative operations and sorts.
    scan_step_ns: float = fact(200.0, "ns", "A step of a loop that combines two rows", OPERATIONS)
    cumulative_row_ns: float = fact(
        0.7, "ns per element", "Combining and storing rows in such a loop", OPERATIONS
    )
    cumulative_log_ns: float = fact(
        8.0, "ns per element", "Adding two logarithms of sums", OPERATIONS
    )
    compared_level_ns: float = fact(
        7.0, "ns per element", "Each of the log2(n) levels of a sort by a comparator", OPERATIONS
    )
    packed_level_ns: float = fact(4.0, "ns per element", "The same of 64-bit integers", OPERATIONS)
    packed_ns: float = fact(
        1.0, "ns per element", "Packing keys and places into integers", OPERATIONS
    )
    packed_operand_ns: float = fact(
        1.5, "ns per element", "Reading a sorted operand at its places", OPERATIONS
    )

    # Operations outside of XLA's loops.
    lapack_call_ns: float = fact(500.0, "ns", "A call into LAPACK, of any batch", LAPACK)
    lapack: Mapping[str, tables.LapackCosts] = fact(
        tables.LAPACK, "ns per matrix", "Routines and their replacements", LAPACK
    )
    other_call: tuple[float, float, float, float] = fact(
        (500.0, 0.0, 0.0, 0.5), "ns per matrix", "Any other call, as a routine's", LAPACK
    )
    scatter_ns: float = fact(0.9, "ns per window", "A scatter by XLA's own loop", NATIVE)
    scatter_element_ns: float = fact(
        0.1, "ns per element", "The same for each element of a window beyond one", NATIVE
    )
    scatter_loop_ns: float = fact(8.0, "ns per window", "A scatter's replacement", NATIVE)
    scatter_loop_element_ns: float = fact(
        1.15, "ns per element", "The same for each element of a window beyond one", NATIVE
    )
    top_k_ns: float = fact(8.0, "ns per element", "XLA's call for the largest of rows", NATIVE)
    sort_call_ns: float = fact(100.0, "ns", "A call of XLA's sort", RATES)
    sort_element_ns: float = fact(
        10.0, "ns per element", "Each of the log2(n) levels of a short sort", NATIVE
    )
    sort_pair_ns: float = fact(
        0.6, "ns per pair", "The replacement of a sort, which compares all pairs", NATIVE
    )

    # Kernels inside native code, and the loop generators.
    native_kernel_ns: float = fact(5.0, "ns", "One kernel more inside native code")
    native_row: int = fact(32, "elements", "Shorter rows are not moved as a whole there", NATIVE)
    native_row_ns: float = fact(
        0.25, "ns per element", "What such rows take longer to gather or join", NATIVE
    )
    native_index_ns: float = fact(
        0.35, "ns per element", "A gather's further index of every place", NATIVE
    )
    short_functions: Mapping[str, Mapping[str, tuple[float, float]]] = fact(
        tables.SHORT_FUNCTIONS, "ns per element", "Functions of short and long arrays", FUNCTIONS
    )
    member_ns: float = fact(1.0, "ns", "Copying an argument and reading a result", FUNCTIONS)
    pack_ns: float = fact(5.0, "ns", "The loop over a packed array", FUNCTIONS)
    filled_ns: float = fact(12.0, "ns", "Waiting for a lone array that is filled up", FUNCTIONS)
    unrolled_instructions: float = fact(
        300.0, "instructions", "Up to so many LLVM unrolls a loop in full", FUNCTIONS
    )
    loop_instructions: int = fact(
        4, "instructions", "Of a loop that neither load nor compute", FUNCTIONS
    )
    interleaved_row: int = fact(
        8, "elements", "Longest unrolled row whose loop over rows vectorises", FUNCTIONS
    )
    interleaved_rows: int = fact(4, "rows", "So many rows that takes", FUNCTIONS)
    tile: int = fact(16, "elements", "Widest tile of the tiled code generator", KERNELS)
    tile_ns: float = fact(0.1, "ns per tile", "A whole tile beyond a plain loop", KERNELS)
    narrow_tile_ns: float = fact(2.0, "ns per tile", "A narrower tile beyond a plain loop", KERNELS)
    tiled_element_ns: float = fact(0.02, "ns per element", "Its elements beyond one", KERNELS)
    tiled_byte_ns: float = fact(0.15, "ns per element", "The same, elements of one byte", KERNELS)
    tiled_functions_ns: Mapping[str, tuple[float, float, float]] = fact(
        tables.TILED_FUNCTIONS, "ns per element", "The same, functions sooner in a loop", KERNELS
    )
    tiled_complex_ns: Mapping[str, float] = fact(
        tables.TILED_COMPLEX, "ns per element", "The same beside complex numbers", KERNELS
    )
    looped_functions_ns: Mapping[str, tuple[float, float, float]] = fact(
        tables.LOOPED_FUNCTIONS, "ns per element", "What a loop loses to a tile", KERNELS
    )

    def __post_init__(self) -> None:
        check_facts(self)
