"""What matrix products cost: by the library, as plain loops in native code, and there in blocks.

The figures are those of `graphopt.machine.CpuCosts`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from graphopt.costs.shared_products import UNKNOWN, Sharing, sharing_of
from graphopt.hlo import Graph
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.dot_blocks import SHORT, Product, product_of
from graphopt.hlo.restructure.rows.dot_reduce import TYPES
from graphopt.machine import CpuCosts, UnitKind, own_costs, unit_index


def dot_flops(graph: Graph, node: int) -> float:
    """Multiplications and additions of a dot."""
    numbers = graph.source.protos[node].dot_dimension_numbers
    dims = graph.dim_lists[graph.operand_lists[node][0]]
    flops = 2.0 * float(graph.elements[node])
    for dimension in numbers.lhs_contracting_dimensions:
        flops *= dims[dimension]
    return flops


@dataclass(frozen=True)
class ProductCosts:
    """Nanoseconds of one matrix product.

    Attributes:
        library_ns: by the matrix library.
        plain_ns: as plain loops in native code.
        blocks_ns: in blocks in native code; None if that is not legal.
        reduced_ns: as a multiplication and a reduction, in native code or a loop kernel; None if that is not
            legal.
        runtime_ns: by the runtime where XLA calls the library: in loops of its own, or shared between cores
            where the library uses one; None if it does neither, or sums too roughly.
        swapped_ns: by the runtime with the operands in the other order; None where that was never faster.
        sharing: how many threads take part where the library or the runtime computes it.
    """

    library_ns: float
    plain_ns: float
    blocks_ns: float | None
    reduced_ns: float | None = None
    runtime_ns: float | None = None
    swapped_ns: float | None = None
    sharing: Sharing = UNKNOWN

    @property
    def native_form(self) -> str:
        """The restructure that is fastest in native code; ``keep`` for plain loops."""
        return min(self._native, key=self._native.__getitem__)

    @property
    def native_ns(self) -> float:
        """In native code, in the fastest form."""
        return self._native[self.native_form]

    @cached_property
    def _native(self) -> dict[str, float]:
        forms = {"keep": self.plain_ns, "dot-blocks": self.blocks_ns, "dot-reduce": self.reduced_ns}
        return {name: ns for name, ns in forms.items() if ns is not None}


def product_costs(graph: Graph, node: int, costs: CpuCosts | None = None) -> ProductCosts:
    """Costs of a dot; on this machine by default."""
    costs = costs or own_costs()
    instruction = graph.source.protos[node]
    left, right = (graph.dim_lists[operand] for operand in graph.operand_lists[node])
    product = product_of(instruction, left, right)
    slower = costs.slower_products.get(DType(int(graph.dtype[node])).name.lower(), 1.0)
    work = dot_flops(graph, node) * slower
    library = costs.runtime_call_ns + work / costs.dot_flops_per_ns
    if product is None:
        return ProductCosts(library, work / costs.slow_flops_per_ns, None)
    legal = graph.masks.restructure[node]
    written = product.columns > 1 and legal[CODE["dot-reduce"]]
    if product.batch == 1 and 1 in (product.rows, product.columns):
        return _vector_costs(product, work, slower, bool(legal[CODE["dot-reduce"]]), costs)
    blocks = _blocks_ns(product, work, slower, costs) if legal[CODE["dot-blocks"]] else None
    plain = work / _plain_rate(product, costs)
    called = graph.units[graph.default.unit[node]].kind is UnitKind.LIBRARY
    turned = costs.turned_call_ns * (product.left_turned or product.right_turned)
    threads = graph.units[unit_index(graph.units, UnitKind.RUNTIME)].threads
    sharing = sharing_of(product, work, threads, costs)
    if product.batch > 1:
        library += turned + product.batch * _matrix_ns(called, product, costs)
        reduced = _reduced_ns(product, work, slower, costs) if written else None
        return ProductCosts(library, plain, blocks, reduced, sharing=sharing)
    by_loops = product.inner <= costs.naive_product and DType(int(graph.dtype[node])) in TYPES
    if by_loops and not called:
        return ProductCosts(plain, plain, blocks, sharing=Sharing())
    swapped, single = None, graph.dtype[node] == DType.F32
    may_swap = not called and product.left_turned and not product.right_turned
    if may_swap and single and legal[CODE["dot-swap"]]:
        swapped = library + _swapped_ns(product, costs)
    library += _rows_ns(called, product, turned, costs)
    reduced = work / _kernel_rate(product, costs) if written else None
    runtime = plain if by_loops else None
    if called and single and sharing.runtime_ns is not None:
        runtime = sharing.runtime_ns
    return ProductCosts(library, plain, blocks, reduced, runtime, swapped, sharing)


def _swapped_ns(product: Product, costs: CpuCosts) -> float:
    """What `a.T @ b` by the runtime takes beside its rate as `b.T @ a`, turned.

    Of products stored otherwise both operands would be stored worse when swapped.
    """
    swapped = replace(product, rows=product.columns, columns=product.rows)
    results = product.rows * product.columns
    packed = _rows_ns(False, swapped, costs.turned_call_ns, costs)
    return packed + costs.thunk_ns + results * costs.moved_ns


def _rows_ns(called: bool, product: Product, turned: float, costs: CpuCosts) -> float:
    """What a single product takes beside its rate: by the kernel library, if called, or by the runtime.

    `turned` is what a call takes longer for operands in another order.
    """
    if product.columns > costs.few_columns:
        return turned
    if called:
        odd = product.inner % 4 and product.columns <= costs.narrow_columns
        return product.rows * (costs.library_odd_row_ns if odd else costs.library_row_ns)
    elements = product.rows * product.inner
    if product.left_turned:
        return elements * costs.runtime_turned_ns
    return turned + elements * costs.runtime_element_ns


def _kernel_rate(product: Product, costs: CpuCosts) -> float:
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


def _vector_costs(
    product: Product, work: float, slower: float, written: bool, costs: CpuCosts
) -> ProductCosts:
    """Costs of a matrix by a vector, for which XLA writes loops of its own.

    What they take depends on how many elements of the matrix lie together in memory.
    """
    turned = product.left_turned if product.columns == 1 else not product.right_turned
    run = max(product.rows, product.columns) if turned else product.inner
    if run < costs.least_columns:
        ns = work / costs.slow_flops_per_ns
        short = costs.reduced_result_ns * product.rows * product.columns * slower
        short += work / costs.reduced_flops_per_ns
        return ProductCosts(ns, ns, None, short if written else None, sharing=Sharing())
    ns = work / costs.vector_flops_per_ns
    if run % costs.vector_multiple:
        odd = costs.odd_vectors, costs.odd_native_vectors
        return ProductCosts(ns * odd[0], ns * odd[1], None, sharing=Sharing())
    return ProductCosts(ns, ns, None, sharing=Sharing())


def _matrix_ns(called: bool, product: Product, costs: CpuCosts) -> float:
    """What XLA takes for each matrix of a batch beside its rate: a call, or a scalar loop for a vector."""
    if called:
        return costs.library_matrix_ns
    if product.rows == 1:
        apart = 1 < product.columns < costs.least_columns and not product.right_turned
        return 2.0 * product.inner * product.columns / costs.slow_flops_per_ns if apart else 0.0
    longest = max(product.rows, product.inner, product.columns)
    return (
        costs.runtime_call_ns
        if product.columns > 1 and costs.naive_product < longest <= costs.called_product
        else 0.0
    )


def _reduced_ns(product: Product, work: float, slower: float, costs: CpuCosts) -> float:
    results = product.batch * product.rows * product.columns
    together = product.columns >= costs.least_columns and not product.right_turned
    fast = together and product.inner <= SHORT
    rate = costs.reduced_rows_flops_per_ns if fast else costs.reduced_flops_per_ns
    return costs.reduced_result_ns * results * slower + work / rate


def _plain_rate(product: Product, costs: CpuCosts) -> float:
    if product.batch > 1 and product.columns > 1:
        apart = product.right_turned and (product.rows > 1 or product.inner < costs.narrow_columns)
        if apart or product.columns < costs.narrow_columns:
            return costs.batched_flops_per_ns
    if product.is_fast:
        narrow = min(costs.narrow_flops_per_ns, costs.column_flops_per_ns * max(1, product.columns))
        return _fast_rate(product, narrow, costs)
    return costs.long_flops_per_ns if product.inner > costs.long_sum else costs.slow_flops_per_ns


def _blocks_ns(product: Product, work: float, slower: float, costs: CpuCosts) -> float:
    parts = 0 if product.inner <= SHORT else product.inner // (product.block or 1)
    added = product.batch * product.rows * product.columns * parts
    moved = product.moved_elements * costs.moved_ns + added / costs.operations_per_ns
    return (
        3 * costs.product_part_ns
        + work / _fast_rate(product, costs.narrow_blocks_flops_per_ns, costs)
        + moved * slower
    )


def _fast_rate(product: Product, narrow: float, costs: CpuCosts) -> float:
    if product.rows == 1 or product.columns == 1:
        return costs.vector_flops_per_ns
    return costs.fast_flops_per_ns if product.columns >= costs.narrow_columns else narrow
