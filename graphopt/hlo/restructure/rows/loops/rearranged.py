"""Operands of products that other forms of the products bring into another order first.

Where a loop keeps such an operand, that is done once for all iterations
(`graphopt.hlo.restructure.rows.loops.invariants`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.restructure.rows import dot_blocks
from graphopt.hlo.restructure.rows.turned import rows
from graphopt.hlo.restructure.rows.turned.regions import Region, region_of, turns_matrix
from graphopt.hlo.restructure.sites import Candidate


@dataclass(frozen=True)
class Rearranged:
    """An operand of a product.

    Attributes:
        node: the product.
        row: name of the restructure that rearranges the operand.
        operand: its number.
    """

    node: int
    row: str
    operand: int


@per_graph
def rearranged(graph: Graph) -> dict[tuple[int, int], list[Rearranged]]:
    """(computation id, local id) of products -> operands that another form of it rearranges."""
    found: dict[tuple[int, int], list[Rearranged]] = {}
    for node, op in enumerate(graph.ops):
        operands = list(_operands(graph, node)) if op.name == "dot" else []
        if operands:
            found.update(dict.fromkeys(graph.source.instances[node], operands))
    return found


def _operands(graph: Graph, node: int) -> Iterator[Rearranged]:
    candidate = Candidate(graph, node)
    if dot_blocks.forbids(candidate) is None:
        left, right = (graph.dim_lists[o] for o in candidate.operands)
        product = dot_blocks.product_of(candidate.instruction, left, right)
        same = candidate.operand_shape(1).element_type == candidate.shape.element_type
        # Others are converted, or named with other dimensions, before they are rearranged.
        if product is not None and product.right_turned and len(right) == 2 and same:
            yield Rearranged(node, "dot-blocks", 1)
    if rows.forbids(candidate) is None:
        numbers = candidate.instruction.dot_dimension_numbers
        summed = (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions)
        for operand in (0, 1):
            if summed[operand][0] < len(candidate.operand_shape(operand).dimensions) - 1:
                yield Rearranged(node, "dot-rows", operand)
    if turns_matrix(graph, node) and isinstance(region_of(graph, node), Region):
        yield Rearranged(node, "dot-turned", 0)
