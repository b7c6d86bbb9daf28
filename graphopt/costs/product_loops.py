"""What single forms of a matrix product take as loops: plain, in blocks, or multiplied and reduced."""

from __future__ import annotations

from collections.abc import Collection

from graphopt.hlo import Graph
from graphopt.hlo.restructure.rows.dot_blocks import SHORT, Product
from graphopt.machine import CpuCosts


def dot_flops(graph: Graph, node: int) -> float:
    """Multiplications and additions of a dot."""
    numbers = graph.source.protos[node].dot_dimension_numbers
    dims = graph.dim_lists[graph.operand_lists[node][0]]
    flops = 2.0 * float(graph.elements[node])
    for dimension in numbers.lhs_contracting_dimensions:
        flops *= dims[dimension]
    return flops


def kernel_rate(product: Product, costs: CpuCosts) -> float:
    """Flops per ns of a single product as one loop kernel."""
    scalar = product.left_turned and product.inner > costs.narrow_columns
    scalar |= product.right_turned and costs.least_columns < product.inner <= SHORT  # written out
    if scalar:
        return costs.slow_flops_per_ns
    apart = product.left_turned and product.inner > costs.least_columns
    if apart or product.right_turned or product.inner > SHORT or product.columns <= 3:
        return costs.reduced_flops_per_ns
    if product.columns % 4:
        return costs.odd_columns_flops_per_ns
    return min(costs.reduced_rows_flops_per_ns, costs.column_flops_per_ns * product.columns)


def reduced_ns(product: Product, work: float, slower: float, costs: CpuCosts) -> float:
    """Nanoseconds of a batch as a multiplication and a reduction."""
    results = product.batch * product.rows * product.columns
    together = product.columns >= costs.least_columns and not product.right_turned
    fast = together and product.inner <= SHORT
    rate = costs.reduced_rows_flops_per_ns if fast else costs.reduced_flops_per_ns
    return costs.reduced_result_ns * results * slower + work / rate


def plain_rate(product: Product, costs: CpuCosts) -> float:
    """Flops per ns of plain loops in native code."""
    if product.batch > 1 and product.columns > 1:
        apart = product.right_turned and (product.rows > 1 or product.inner < costs.narrow_columns)
        if apart or product.columns < costs.narrow_columns:
            return costs.batched_flops_per_ns
    in_order = not product.left_turned and not product.right_turned
    if product.is_fast or (in_order and product.inner <= costs.plain_sum):
        narrow = min(costs.narrow_flops_per_ns, costs.column_flops_per_ns * max(1, product.columns))
        return fast_rate(product, narrow, costs)
    return costs.long_flops_per_ns if product.inner > costs.long_sum else costs.slow_flops_per_ns


def blocks_ns(
    product: Product, work: float, slower: float, costs: CpuCosts, kept: Collection[int] = ()
) -> float:
    """Nanoseconds in blocks in native code; operands `kept`, by number, are in the right order."""
    parts = 0 if product.inner <= SHORT else product.inner // (product.block or 1)
    added = product.batch * product.rows * product.columns * parts
    moved = product.moved_elements(kept) * costs.moved_ns + added / costs.operations_per_ns
    return (
        3 * costs.product_part_ns
        + work / fast_rate(product, costs.narrow_blocks_flops_per_ns, costs)
        + moved * slower
    )


def fast_rate(product: Product, narrow: float, costs: CpuCosts) -> float:
    """Flops per ns of loops that vectorise; `narrow` of few columns."""
    if product.rows == 1 or product.columns == 1:
        return costs.vector_flops_per_ns
    return costs.fast_flops_per_ns if product.columns >= costs.narrow_columns else narrow


def along_ns(
    product: Product, work: float, slower: float, costs: CpuCosts, kept: Collection[int] = ()
) -> float:
    """Nanoseconds in native code as sums along the rows of both operands, which are brought into that order.

    Args:
        product: of canonical form.
        work: multiplications and additions, times `slower`.
        slower: than in single precision.
        costs: of the machine.
        kept: operands, by number, that are in that order already.
    """
    moved = product.rows if product.left_turned and 0 not in kept else 0
    moved += product.columns if not product.right_turned and 1 not in kept else 0
    results = product.batch * product.rows * product.columns
    moved_ns = moved * product.batch * product.inner * costs.moved_ns * slower
    if product.inner <= costs.along_sum:
        return work / costs.along_short_flops_per_ns + moved_ns
    return results * costs.along_result_ns + work / costs.along_flops_per_ns + moved_ns
