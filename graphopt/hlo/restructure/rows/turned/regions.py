"""What is computed of a product of a matrix and a few vectors, element by element, up to where it ends.

Under ``vmap`` a matrix times a vector becomes a matrix times a few of them, and the result has a row for each
row of the matrix, of only a few elements. Everything that is computed of it element by element, or of parts
of it, can as well have a row for each vector: a *region*, between the products that begin it and what ends
it, products, sums and transpositions. Those read one order as well as the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from graphopt.hlo.graph.derived import per_graph
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.hlo.module.proto import DType
from graphopt.hlo.restructure.rows.dot_blocks import product_of
from graphopt.hlo.restructure.writing.turning import exchanged
from graphopt.hlo.restructure.writing.values import is_row_major

TYPES: Final = frozenset({DType.F32, DType.F64})
"""Element types of the products."""

FEW: Final = 32
"""Vectors from which on vector code runs along them."""

MAX_NODES: Final = 256
"""Largest region."""

RULES: Final = {
    "turned-shape": "it is no product of a matrix and a few vectors",
    "turned-entry": "what is computed of the product also reads an array in the same order from elsewhere",
    "turned-exit": "what is computed of the product is read by what wants its order",
    "turned-others": "another product of the same region must stay as it is",
    "turned-size": "too much is computed of the product element by element",
}


_BEGINNINGS: Final = frozenset({"dot", "broadcast", "iota", "transpose"})
"""Operations that begin a region: what they read has no part in it by that."""

_PARTS: Final = frozenset({"slice", "concatenate", "pad", "reduce-window"})
"""Operations on parts of an array: gates of recurrent networks, long sums, which XLA makes in two steps."""


@dataclass(frozen=True)
class Region:
    """Nodes whose last two dimensions change places together.

    Attributes:
        dots: products that begin it.
        inside: elementwise operations, broadcasts, parts, and transpositions into it.
        ends: products, sums and transpositions that read it.
    """

    dots: tuple[int, ...]
    inside: tuple[int, ...]
    ends: tuple[int, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """All nodes whose instructions are written in another way."""
        return (*self.dots, *self.inside, *self.ends)


def region_of(graph: Graph, dot: int) -> Region | str:
    """The region around a product, or the name of the rule that forbids to turn it."""
    if not begins(graph, dot):
        return "turned-shape"
    known = _regions(graph)
    if dot not in known:
        found = _Growing(graph, dot).run()
        for node in found.dots if isinstance(found, Region) else (dot,):
            known[node] = found
    return known[dot]


@per_graph
def _regions(graph: Graph) -> dict[int, Region | str]:
    """Regions looked for so far, by product."""
    return {}


def begins(graph: Graph, node: int) -> bool:
    """True for a product with fewer columns than rows, and only few."""
    shape = graph.source.shapes[node]
    if graph.ops[node].name != "dot" or shape.element_type not in TYPES:
        return False
    operands = [graph.source.shapes[o] for o in graph.operand_lists[node]]
    if any(o.element_type != shape.element_type for o in operands):
        return False
    if not all(map(is_row_major, (shape, *operands))):
        return False
    left, right = (list(o.dimensions) for o in operands)
    product = product_of(graph.source.protos[node], left, right)
    if product is None or len(shape.dimensions) < 2:
        return False
    few = 1 < product.columns < min(product.rows, FEW)
    return few and product.inner > 0 and product.batch > 0


def turns_matrix(graph: Graph, dot: int) -> bool:
    """True for a product whose matrix is stored in the other order than it is read in when turned."""
    if not begins(graph, dot):
        return False
    summed = graph.source.protos[dot].dot_dimension_numbers.lhs_contracting_dimensions
    return int(summed[0]) == len(graph.dim_lists[graph.operand_lists[dot][0]]) - 1


class _Growing:
    """One region, grown from a product."""

    def __init__(self, graph: Graph, dot: int) -> None:
        self.graph = graph
        self.rank = len(graph.dim_lists[dot])
        self.computation = graph.computation[dot]
        self.root = graph.computations[self.computation].root
        self.nodes = [dot]
        self.known = {dot}
        self.ends: dict[int, None] = {}

    def run(self) -> Region | str:
        """The region, or the rule that forbids it."""
        for node in self.nodes:
            if len(self.nodes) > MAX_NODES:
                return "turned-size"
            if self.graph.computation[node] != self.computation:
                return "turned-entry"
            rule = self._operands(node) or self._users(node)
            if rule is not None:
                return rule
        if not self.known.isdisjoint(n for n in self.ends if self.graph.ops[n].name != "dot"):
            return "turned-exit"  # it turns what would be turned before and behind it
        names = [self.graph.ops[node].name for node in self.nodes]
        pairs = list(zip(self.nodes, names, strict=True))
        return Region(
            dots=tuple(sorted(node for node, name in pairs if name == "dot")),
            inside=tuple(sorted(node for node, name in pairs if name != "dot")),
            ends=tuple(sorted(self.ends)),
        )

    def _operands(self, node: int) -> str | None:
        """Takes in what an elementwise operation, or one that makes parts, reads."""
        op = self.graph.ops[node]
        if op.name in _BEGINNINGS:
            return None
        for operand in self.graph.operand_lists[node]:
            if not self.graph.dim_lists[operand]:
                continue  # a scalar that is selected by, clamped to or filled in
            if not self._belongs(operand) and not self._may_begin(operand):
                return "turned-entry"
            self._take(operand)
        return None

    def _users(self, node: int) -> str | None:
        """Takes in what reads a node, or notes that the region ends there."""
        if node == self.root:
            return "turned-exit"
        for user in self.graph.user_lists[node]:
            if self.graph.ops[user].name != "transpose" and self._belongs(user):
                self._take(user)
            elif self._may_end(user, node):
                self.ends[user] = None
            else:
                return "turned-exit"
        return None

    def _take(self, node: int) -> None:
        if node not in self.known:
            self.known.add(node)
            self.nodes.append(node)

    def _belongs(self, node: int) -> bool:
        """True for elementwise operations, parts, broadcasts along one dimension, and transpositions."""
        graph, rank = self.graph, self.rank
        op = graph.ops[node]
        if len(graph.dim_lists[node]) != rank:
            return False
        if op.name == "transpose":
            return self._only_turns(node)
        if not is_row_major(graph.source.shapes[node]):
            return False
        if op.name == "broadcast":
            return not {rank - 2, rank - 1} <= set(graph.source.protos[node].dimensions)
        if op.name == "copy":  # others are there to be overwritten
            (source,) = graph.operand_lists[node]
            return graph.ops[source].name == "transpose" and self._belongs(source)
        return op.name == "iota" or op.name in _PARTS or op.kind is OpKind.ELEMENTWISE

    def _may_begin(self, node: int) -> bool:
        return len(self.graph.dim_lists[node]) == self.rank and begins(self.graph, node)

    def _only_turns(self, node: int) -> bool:
        """True for a transposition of the last two dimensions between arrays in row-major order.

        XLA writes many as arrays in column-major order, with the copy into row-major order behind them.
        """
        graph, rank = self.graph, self.rank
        dimensions = list(graph.source.protos[node].dimensions)
        if dimensions != exchanged(range(rank), rank):
            return False
        if not is_row_major(graph.source.shapes[graph.operand_lists[node][0]]):
            return False
        if is_row_major(graph.source.shapes[node]):
            return True
        users = graph.user_lists[node]
        return node != self.root and all(graph.ops[u].kind is OpKind.ELEMENTWISE for u in users)

    def _may_end(self, user: int, node: int) -> bool:
        """True for what reads a node of the region in one order as well as in the other."""
        graph, rank = self.graph, self.rank
        name, proto = graph.ops[user].name, graph.source.protos[user]
        if graph.computation[user] != self.computation:
            return False
        if name == "transpose":
            return self._only_turns(user)
        if name == "reduce":
            kept = [d for d in range(rank) if d not in proto.dimensions]
            arrays = len(graph.operand_lists[user]) == 2
            return arrays and not {rank - 2, rank - 1} <= set(kept)
        return name == "dot" and self._reads_either(user, node)

    def _reads_either(self, dot: int, node: int) -> bool:
        """True for a product whose form does not depend on the order of an operand."""
        left, right = self.graph.operand_lists[dot]
        numbers = self.graph.source.protos[dot].dot_dimension_numbers
        summed: Sequence[int] = numbers.lhs_contracting_dimensions
        if left != node:
            summed = numbers.rhs_contracting_dimensions
        dims = [self.graph.dim_lists[o] for o in (left, right)]
        canonical = product_of(self.graph.source.protos[dot], *dims) is not None
        batch = len(numbers.lhs_batch_dimensions)
        return left != right and canonical and batch == self.rank - 2 and len(summed) == 1
