"""What matrix products cost: by the library, as plain loops in native code, and there in blocks.

The figures are those of `graphopt.machine.CpuCosts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from graphopt.costs.product_loops import blocks_ns, dot_flops, kernel_rate, plain_rate, reduced_ns
from graphopt.costs.shared_products import UNKNOWN, Sharing, sharing_of
from graphopt.costs.turned_products import TURNED, TurnedForms
from graphopt.hlo import Graph
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.dot_blocks import Product, product_of
from graphopt.hlo.restructure.rows.dot_reduce import TYPES
from graphopt.machine import CpuCosts, UnitKind, own_costs, unit_index


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
        turned: nanoseconds in native code by row, in place of the others: of forms that cost less because a
            loop keeps an operand, of long sums along rows, and of all where values around it are turned.
        sharing: how many threads take part where the library or the runtime computes it.
    """

    library_ns: float
    plain_ns: float
    blocks_ns: float | None
    reduced_ns: float | None = None
    runtime_ns: float | None = None
    swapped_ns: float | None = None
    sharing: Sharing = UNKNOWN
    turned: Mapping[str, float] = field(default_factory=dict)

    @property
    def native_form(self) -> str:
        """The restructure that is fastest in native code; ``keep`` for plain loops."""
        if TURNED in self.turned:  # what is computed of it depends on that
            return TURNED
        return min(self._native, key=self._native.__getitem__)

    @property
    def native_ns(self) -> float:
        """In native code, in the fastest form."""
        return self._native[self.native_form]

    @cached_property
    def _native(self) -> dict[str, float]:
        forms = {"keep": self.plain_ns, "dot-blocks": self.blocks_ns, "dot-reduce": self.reduced_ns}
        return {name: ns for name, ns in {**forms, **self.turned}.items() if ns is not None}


def product_costs(
    graph: Graph, node: int, costs: CpuCosts | None = None, turned: TurnedForms | None = None
) -> ProductCosts:
    """Costs of a dot.

    Args:
        graph: of the program.
        node: the dot.
        costs: of the machine; this one's if None.
        turned: of the graph and these costs; found anew if None.
    """
    costs = costs or own_costs()
    turned = turned or TurnedForms(graph, costs)
    return replace(_as_it_is(graph, node, costs), turned=turned.of(node))


def _as_it_is(graph: Graph, node: int, costs: CpuCosts) -> ProductCosts:
    """Costs of a dot whose operands stay as they are."""
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
    blocks = blocks_ns(product, work, slower, costs) if legal[CODE["dot-blocks"]] else None
    plain = work / plain_rate(product, costs)
    called = graph.units[graph.default.unit[node]].kind is UnitKind.LIBRARY
    turned = costs.turned_call_ns * (product.left_turned or product.right_turned)
    threads = graph.units[unit_index(graph.units, UnitKind.RUNTIME)].threads
    sharing = sharing_of(product, work, threads, costs)
    if product.batch > 1:
        library += turned + product.batch * _matrix_ns(called, product, costs)
        reduced = reduced_ns(product, work, slower, costs) if written else None
        return ProductCosts(library, plain, blocks, reduced, sharing=sharing)
    by_loops = product.inner <= costs.naive_product and DType(int(graph.dtype[node])) in TYPES
    if by_loops and not called:
        return ProductCosts(plain, plain, blocks, sharing=Sharing())
    swapped, single = None, graph.dtype[node] == DType.F32
    may_swap = not called and product.left_turned and not product.right_turned
    if may_swap and single and legal[CODE["dot-swap"]]:
        swapped = library + _swapped_ns(product, costs)
    library += _rows_ns(called, product, turned, costs)
    reduced = work / kernel_rate(product, costs) if written else None
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
