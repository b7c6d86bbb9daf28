"""What a tall matrix by a vector costs, as it is stored and turned, in loops that XLA writes itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from graphopt.hlo import Graph
from graphopt.hlo.module.proto import DType
from graphopt.machine import CpuCosts

VECTOR: Final = {DType.F32: 16, DType.F64: 8}
"""Elements of the widest vector."""


@dataclass(frozen=True)
class TallCosts:
    """Nanoseconds of one product.

    Attributes:
        stored_ns: with the matrix as it is.
        turned_ns: with a turned copy.
    """

    stored_ns: float
    turned_ns: float


def tall_costs(graph: Graph, node: int, operand: int, costs: CpuCosts) -> TallCosts:
    """Costs of a product of a tall matrix and a vector.

    Args:
        graph: of the program.
        node: the product.
        operand: number of the matrix among its operands.
        costs: of the machine.
    """
    rows, columns = graph.dim_lists[graph.operand_lists[node][operand]]
    vector = VECTOR[DType(int(graph.dtype[node]))]
    rate = costs.long_rows_flops_per_ns
    if columns < vector:
        rate = costs.short_rows_flops_per_ns
    elif columns % vector:
        rate = costs.odd_rows_flops_per_ns
    turned = costs.long_rows_flops_per_ns
    if graph.dtype[node] == DType.F64:
        turned, rate = turned / 2.0, min(rate, turned / 2.0)
    flops = 2.0 * rows * columns
    return TallCosts(flops / rate, flops / turned)
