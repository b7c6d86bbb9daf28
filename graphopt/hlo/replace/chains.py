"""Chains of elementwise operations on whole arrays: one kernel each, with what stands around them.

XLA emits each value of a kernel once, however many of its values read it, if they read it at their own place.
So such a chain is best one kernel. Two results, as the two words of the random number generator, share one; a
value that leads to more is written to memory. An old operation that alone reads a chain becomes its end, old
kernels that only a chain reads its beginning. A chain is no part of a reduction, which does not vectorise.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphopt.hlo.graph.decisions import Decisions, Masks
from graphopt.hlo.graph.graph import Graph
from graphopt.hlo.module.opcodes import OpKind
from graphopt.machine import UnitKind

MAX_RESULTS: Final = 2
"""Results that a chain may be computed for, in one kernel."""


def group_chains(
    graph: Graph,
    masks: Masks,
    chained: NDArray[np.bool_],
    fresh: NDArray[np.bool_],
    decisions: Decisions,
) -> NDArray[np.bool_]:
    """Makes chains kernels of one or two outputs, in place.

    Args:
        graph: of bare new operations among old ones.
        masks: of the graph.
        chained: bool [N]; new operations that chains consist of.
        fresh: bool [N]; all new operations.
        decisions: for the graph; changed.

    Returns:
        bool [N]; old nodes that became part of the kernel of a chain.
    """
    if not chained.any():
        return np.zeros(len(graph), np.bool_)
    return _Chains(graph, masks, chained, fresh, decisions).run()


class _Chains:
    """Goes through a graph from its results to its arguments."""

    def __init__(
        self,
        graph: Graph,
        masks: Masks,
        chained: NDArray[np.bool_],
        fresh: NDArray[np.bool_],
        decisions: Decisions,
    ) -> None:
        self.graph, self.masks, self.decisions = graph, masks, decisions
        self.chained, self.fresh = chained.tolist(), fresh.tolist()
        self.changed = np.zeros(len(graph), np.bool_)
        self.roots: dict[int, frozenset[int]] = {}
        """Node -> roots of the kernels that compute each of its elements once."""

    def run(self) -> NDArray[np.bool_]:
        """Places every node; returns what `group_chains` does."""
        for node in reversed(range(len(self.graph))):
            if not self.fresh[node]:
                self._place_old(node)
            elif self.chained[node]:
                self._place_new(node)
        for node, roots in self.roots.items():
            for root in roots if self.chained[node] else ():
                self.changed[root] |= not self.fresh[root]
        return self.changed

    def _place_new(self, node: int) -> None:
        """An operation of a chain is computed inside the kernels of its readers, or is a result."""
        op, fuse, allowed = self.graph.ops[node], self.decisions.fuse, self.masks.fuse[node, 1]
        if op.name == "broadcast":
            fuse[node] = allowed
        if op.name == "bitcast":
            # An element's place among other dimensions takes divisions, which do not vectorise.
            readers = self.graph.user_lists[node]
            fuse[node] = allowed and not any(
                self.graph.ops[u].kind is OpKind.ELEMENTWISE for u in readers
            )
        if op.kind is not OpKind.ELEMENTWISE:
            return
        found = self._around(node)
        fuse[node] = bool(found) and allowed
        self.roots[node] = found if fuse[node] else frozenset([node])
        self.decisions.join[node] = not fuse[node] and self.masks.join[node, 1]

    def _place_old(self, node: int) -> None:
        """An old operation keeps its place, unless a chain begins or ends there."""
        graph, decisions = self.graph, self.decisions
        if self._is_number_for_chains(node):
            decisions.fuse[node] = self.changed[node] = True
            return
        if graph.ops[node].kind is not OpKind.ELEMENTWISE:
            return
        found = self._around(node)
        if decisions.fuse[node]:
            if not found and self.masks.fuse[node, 0] and self._ends_at(node):
                decisions.fuse[node], self.changed[node] = False, True
                found = frozenset([node])
            self.roots[node] = found
        elif graph.units[decisions.unit[node]].kind is UnitKind.LOOP and not decisions.join[node]:
            readers = graph.user_lists[node]
            begins = found and all(self.chained[u] or self.changed[u] for u in readers)
            if begins and self.masks.fuse[node, 1]:
                decisions.fuse[node] = self.changed[node] = True
            self.roots[node] = found if self.changed[node] else frozenset([node])

    def _is_number_for_chains(self, node: int) -> bool:
        """True for a kernel of a single number, such as a word of a key, that only chains read."""
        op, fuse = self.graph.ops[node], self.decisions.fuse
        if self.graph.elements[node] != 1 or fuse[node] or not self.masks.fuse[node, 1]:
            return False
        plain = op.name == "bitcast" or (op.kind is OpKind.ELEMENTWISE and not op.expensive)
        return plain and all(map(self._is_inside, self.graph.user_lists[node]))

    def _is_inside(self, node: int) -> bool:
        """True for a node that only kernels of chains compute."""
        if self.fresh[node] or self.changed[node]:
            return True
        readers = self.graph.user_lists[node]
        return bool(self.decisions.fuse[node]) and len(readers) == 1 and self._is_inside(readers[0])

    def _ends_at(self, node: int) -> bool:
        """True for the only reader of what a chain computes: one array to write in place of two."""
        users = self.graph.user_lists
        chained = [o for o in self.graph.operand_lists[node] if self.chained[o]]
        return bool(chained) and all(set(users[o]) == {node} for o in chained)

    def _around(self, node: int) -> frozenset[int]:
        """Roots of the kernels that would compute a node once per element; empty if there are none such."""
        found: frozenset[int] = frozenset()
        for reader in self.graph.user_lists[node]:
            roots = self.roots.get(reader, frozenset())
            if not roots or self.graph.elements[reader] != self.graph.elements[node]:
                return frozenset()
            found |= roots
        # Two results share a kernel if both are new: an old one does not join.
        shared = len(found) == 1 or all(self.fresh[root] for root in found)
        return found if len(found) <= MAX_RESULTS and shared else frozenset()
