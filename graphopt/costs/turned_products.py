"""What products cost in native code where a loop keeps an operand, or where results are turned.

A form that brings an operand into another order does so once for all iterations of a loop that keeps it.
And whether a region of products and what is computed of them is turned (`dot-turned`) is decided here, by
the costs of its products and of those that end it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np

from graphopt.costs.elements import ends_ns
from graphopt.costs.product_loops import (
    along_ns,
    blocks_ns,
    dot_flops,
    kernel_rate,
    plain_rate,
    reduced_ns,
)
from graphopt.hlo import Graph
from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure import CODE
from graphopt.hlo.restructure.rows.dot_blocks import Product, product_of
from graphopt.hlo.restructure.rows.loops.invariants import plan_of
from graphopt.hlo.restructure.rows.turned.products import stays_plain
from graphopt.hlo.restructure.rows.turned.regions import Region, region_of
from graphopt.hlo.restructure.sites import Candidate
from graphopt.machine import CpuCosts

TURNED: Final = "dot-turned"
"""The row by which a region is turned."""


@per_graph
def kept_operands(graph: Graph) -> Mapping[tuple[int, str], Collection[int]]:
    """(product, row) -> operands that the row rearranges, by number, and that a loop around it keeps."""
    found: dict[tuple[int, str], set[int]] = {}
    for node, op in enumerate(graph.ops):
        if op.name == "while" and graph.masks.restructure[node, CODE["invariants"]]:
            for kept in plan_of(Candidate(graph, node)).rearranged:
                found.setdefault((kept.node, kept.row), set()).add(kept.operand)
    return found


class TurnedForms:
    """What products of a graph take in native code where that is not what they take as they stand."""

    def __init__(self, graph: Graph, costs: CpuCosts) -> None:
        """Decides which regions are turned.

        Args:
            graph: of the program.
            costs: of the machine.
        """
        self.graph = graph
        self.costs = costs
        self._turned: dict[int, Mapping[str, float]] = {}
        allowed = graph.masks.restructure[:, CODE[TURNED]]
        for node in np.flatnonzero(allowed).tolist():
            region = region_of(graph, node)
            if isinstance(region, Region) and region.dots[0] == node:
                self._turn(region)

    def _turn(self, region: Region) -> None:
        """Notes the forms of the products of a region, and of those that end it, if it is better turned."""
        for node, forms in _forms(self.graph, region, self.costs).items():
            if TURNED not in self._turned.get(node, ()):  # it begins another region
                self._turned[node] = forms

    def of(self, node: int) -> Mapping[str, float]:
        """Row -> nanoseconds of a product, of all such forms."""
        forms = self._turned.get(node)
        if forms is None:
            product = _Product.of(self.graph, node, self.costs)
            forms = {} if product is None else product.kept_forms()
        return forms


def _forms(graph: Graph, region: Region, costs: CpuCosts) -> dict[int, Mapping[str, float]]:
    """Forms of the products of a region and of those that end it; none if it had better stay."""
    now = then = 0.0
    found: dict[int, Mapping[str, float]] = {}
    inside = {*region.dots, *region.inside}
    then += sum(_ends_ns(graph, node, costs) for node in region.inside)
    for node in {*region.dots, *region.ends}:
        product = _Product.of(graph, node, costs)
        if product is None:
            continue
        now += min(product.forms().values())
        reads = [n for n, operand in enumerate(graph.operand_lists[node]) if operand in inside]
        product = product.reading_turned(reads)
        found[node] = product.forms() if node not in region.dots else {TURNED: product.turned_ns()}
        then += min(found[node].values())
    return found if then < now else {}


def _ends_ns(graph: Graph, node: int, costs: CpuCosts) -> float:
    """Nanoseconds that a function of a turned array takes longer at the ends of its rows."""
    *outer, length, columns = graph.dim_lists[node]
    return prod(outer) * columns * ends_ns(graph, [node], length, costs)


@dataclass(frozen=True)
class _Product:
    """A dot in native code.

    Attributes:
        graph: of the program.
        node: the dot.
        shape: rows, columns and so on.
        costs: of the machine.
    """

    graph: Graph
    node: int
    shape: Product
    costs: CpuCosts

    @staticmethod
    def of(graph: Graph, node: int, costs: CpuCosts) -> _Product | None:
        """A node as such a product; None for other operations, and for a matrix by a vector."""
        if graph.ops[node].name != "dot":
            return None
        left, right = (graph.dim_lists[operand] for operand in graph.operand_lists[node])
        shape = product_of(graph.source.protos[node], left, right)
        if shape is None or min(shape.rows, shape.columns) <= 1:
            return None
        return _Product(graph, node, shape, costs)

    @property
    def slower(self) -> float:
        """How much longer the type takes than single precision."""
        name = DType(int(self.graph.dtype[self.node])).name.lower()
        return self.costs.slower_products.get(name, 1.0)

    @property
    def work(self) -> float:
        """Multiplications and additions, as many as would take as long in single precision."""
        return dot_flops(self.graph, self.node) * self.slower

    def kept(self, row: str) -> Collection[int]:
        """Operands that are rearranged once for all iterations."""
        return kept_operands(self.graph).get((self.node, row), ())

    def kept_forms(self) -> dict[str, float]:
        """Forms that are faster for what a loop keeps, and sums along rows as they stand."""
        other = {row for row in ("dot-blocks", "dot-rows") if self.kept(row)}
        if self.is_along:
            other.add("dot-reduce")
        return {name: ns for name, ns in self.forms().items() if name in other}

    @property
    def is_along(self) -> bool:
        """True for sums along the rows of both operands that LLVM does not write out."""
        shape = self.shape
        long = shape.inner > self.costs.along_sum
        return long and not shape.left_turned and shape.right_turned

    def forms(self) -> dict[str, float]:
        """Row -> nanoseconds, of all forms that are legal; ``keep`` for plain loops."""
        legal = self.graph.masks.restructure[self.node]
        shape, work, slower, costs = self.shape, self.work, self.slower, self.costs
        out = {"keep": work / plain_rate(shape, costs)}
        if legal[CODE["dot-blocks"]]:
            out["dot-blocks"] = blocks_ns(shape, work, slower, costs, self.kept("dot-blocks"))
        if legal[CODE["dot-reduce"]]:
            out["dot-reduce"] = self._reduced_ns()
        if legal[CODE["dot-rows"]]:
            out["dot-rows"] = along_ns(shape, work, slower, costs, self.kept("dot-rows"))
        return out

    def _reduced_ns(self) -> float:
        if self.is_along:
            return along_ns(self.shape, self.work, self.slower, self.costs)
        if self.shape.batch > 1:
            return reduced_ns(self.shape, self.work, self.slower, self.costs)
        return self.work / kernel_rate(self.shape, self.costs)

    def reading_turned(self, operands: Collection[int]) -> _Product:
        """The product with operands, by number, stored in the other order."""
        left, right = self.shape.left_turned, self.shape.right_turned
        shape = replace(
            self.shape, left_turned=left ^ (0 in operands), right_turned=right ^ (1 in operands)
        )
        return replace(self, shape=shape)

    def turned_ns(self) -> float:
        """Nanoseconds of the product with its operands in the other order."""
        shape = self.shape
        kept, matrix = self.kept(TURNED), shape.rows * shape.inner * shape.batch
        moved = 0 if shape.left_turned or kept else matrix
        turned = replace(
            shape, rows=shape.columns, columns=shape.rows,
            left_turned=not shape.right_turned, right_turned=False,
        )  # fmt: skip
        ns = self.work / plain_rate(turned, self.costs)
        if not stays_plain(turned):
            ns = blocks_ns(turned, self.work, self.slower, self.costs)
        return ns + moved * self.costs.moved_ns * self.slower
