"""How often fused values are computed: once per index expression at which they are read.

A fused value is computed again for every place where a user reads it at other indices; elementwise users at
the same index share one evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

from graphopt.hlo import Graph
from graphopt.hlo.graph.layouts import innermost
from graphopt.hlo.module.opcodes import OpKind

MOST_EVALUATIONS: Final = 1e15
MOST_COPIES: Final = 1e6
"""Caps on evaluations of a value, and per element of it: chains of recomputation grow exponentially."""

Places = dict[tuple[int, int], float]
"""Index expression -> evaluations there."""

_NOWHERE: Final[Places] = {}


UNROLLED: Final = 16
"""A reduction of so few elements is straight code, which compilers take out of loops."""


def shares(graph: Graph) -> list[tuple[float, ...]]:
    """Operand elements evaluated per result element, per node and operand."""
    out = [
        tuple(_share(graph, node, slot, operand) for slot, operand in enumerate(operands))
        if op.name in _SHARING
        else (1.0,) * len(operands)
        for node, (op, operands) in enumerate(zip(graph.ops, graph.operand_lists, strict=True))
    ]
    loops = holds_loop(graph, out, graph.default.fuse.tolist())
    for node, op in enumerate(graph.ops):
        if op.name == "broadcast" and loops[node]:
            out[node] = (1.0,)
    return out


def holds_loop(
    graph: Graph, shares: Sequence[tuple[float, ...]], fuse: Sequence[bool]
) -> list[bool]:
    """Per node: computing one of its elements is a loop over others, anew for every element.

    Compilers take out of a loop what stays the same in it, but no loop inside it: a sum that is fused into an
    elementwise kernel is added up again for each of the kernel's elements.

    Args:
        graph: of the program.
        shares: `shares` of it.
        fuse: [N]; True where a node is computed inside its users.
    """
    out = [False] * len(graph)
    waiting = [
        node
        for node, op in enumerate(graph.ops)
        if op.name == "reduce" and shares[node][0] > UNROLLED
    ]
    while waiting:
        node = waiting.pop()
        if out[node]:
            continue
        out[node] = True
        if fuse[node]:
            waiting += graph.user_lists[node]
    return out


_SHARING: Final = frozenset(
    {"reduce", "concatenate", "pad", "broadcast", "dynamic-slice", "dynamic-update-slice"}
)
"""Operations that do not evaluate one element of every operand per element of their own."""

_INDICES_FROM: Final = {"dynamic-slice": 1, "dynamic-update-slice": 2}
"""Operation -> its first operand that is an index, which is computed once for all elements."""


def _share(graph: Graph, node: int, slot: int, operand: int) -> float:
    op = graph.ops[node]
    if op.name in _INDICES_FROM and (slot == 0 or slot >= _INDICES_FROM[op.name]):
        return 1.0 if slot == 0 else 1.0 / max(1.0, float(graph.elements[node]))
    if op.name == "reduce":
        return max(1.0, float(graph.elements[operand]) / max(1.0, float(graph.elements[node])))
    if op.name == "broadcast" and not _repeats_innermost(graph, node):
        return 1.0
    return float(graph.elements[operand]) / max(1.0, float(graph.elements[node]))


def _repeats_innermost(graph: Graph, node: int) -> bool:
    """True if a broadcast repeats its operand along the innermost loop, which computes it once."""
    inner = innermost(graph, node)
    return inner is not None and inner not in graph.source.protos[node].dimensions


class Evaluations:
    """One pass from results to inputs that counts evaluations; callers go through nodes in falling order."""

    def __init__(self, graph: Graph, shares: Sequence[tuple[float, ...]]) -> None:
        """Knows no use yet; evaluations across the order of memory are counted beside all.

        Args:
            graph: of the program.
            shares: `shares` of it.
        """
        self.graph = graph
        self._shares = shares
        self._operands = graph.operand_lists
        self._elements = graph.elements.tolist()
        self._elementwise = [op.kind is OpKind.ELEMENTWISE for op in graph.ops]
        self._uses: list[Places] = [_NOWHERE] * len(graph)
        self._own = [False] * len(graph)
        """The node's uses are a dictionary of its own, not that of its only user so far."""
        self._across = [0.0] * len(graph)

    def of(self, node: int) -> float:
        """Evaluations of elements of a fused node; all its users have been passed."""
        return sum(self._uses[node].values())

    def across(self, node: int) -> float:
        """Those evaluations of a fused node that follow another order than its elements have in memory."""
        return self._across[node]

    def pass_on(self, node: int, fused: Sequence[bool]) -> None:
        """Adds what a node reads to its fused operands' uses.

        Args:
            node: all its users have been passed.
            fused: [N]; True where a node is computed inside its users.
        """
        used, self._uses[node] = self._uses[node], _NOWHERE
        read = [(s, o) for s, o in enumerate(self._operands[node]) if fused[o]]
        if not read:
            return
        places = used if fused[node] else {(node, -1): float(self._elements[node])}
        here = sum(places.values())
        across = here if turns(self.graph, node) else self._across[node] if fused[node] else 0.0
        for slot, operand in read:
            if across:
                self._across[operand] = min(self._across[operand] + across, MOST_EVALUATIONS)
            if self._elementwise[node]:
                self._add(operand, places)
            else:
                place = place_read(self.graph, node, slot, places)
                evaluations = min(here * self._shares[node][slot], MOST_EVALUATIONS)
                self._add(operand, {place: evaluations})

    def _add(self, node: int, places: Places) -> None:
        if not self._uses[node]:
            self._uses[node] = places
            return
        if not self._own[node]:
            self._uses[node] = dict(self._uses[node])
            self._own[node] = True
        self._uses[node].update(places)


def evaluation_ns(
    graph: Graph,
    shares: Sequence[tuple[float, ...]],
    node: int,
    fused: Sequence[bool],
    own_ns: Sequence[float],
) -> float:
    """Nanoseconds to compute one element of a node from values in memory.

    A value that is read several times at one index is computed once there.

    Args:
        graph: of the node.
        shares: `shares` of it.
        node: which.
        fused: [N]; True where a node is computed inside its users.
        own_ns: [N]; nanoseconds of one element of each node, its operands not counted.
    """
    uses: dict[int, Places] = {node: {(node, -1): 1.0}}
    waiting = [-node]  # all users of the last node have been passed
    total = 0.0
    while waiting:
        member = -heappop(waiting)
        places = uses.pop(member)
        here = sum(places.values())
        total += here * own_ns[member]
        elementwise = graph.ops[member].kind is OpKind.ELEMENTWISE
        for slot, operand in enumerate(graph.operand_lists[member]):
            if not fused[operand]:
                continue
            if operand not in uses:
                uses[operand] = {}
                heappush(waiting, -operand)
            if elementwise:
                uses[operand].update(places)
            else:
                place = place_read(graph, member, slot, places)
                uses[operand][place] = min(here * shares[member][slot], MOST_EVALUATIONS)
    return total


def turns(graph: Graph, node: int) -> bool:
    """True for a transpose or copy whose innermost dimension is not its operand's."""
    name = graph.ops[node].name
    if name not in ("transpose", "copy"):
        return False
    inner = innermost(graph, node)
    if inner is not None and name == "transpose":
        inner = graph.source.protos[node].dimensions[inner]
    return inner != innermost(graph, graph.operand_lists[node][0])


def copies(graph: Graph, shares: Sequence[tuple[float, ...]]) -> list[float]:
    """Times that each node is computed per element of its result, under XLA's own decisions."""
    fused = graph.default.fuse.tolist()
    elements = graph.elements.tolist()
    counted = Evaluations(graph, shares)
    out = [1.0] * len(graph)
    for node in range(len(graph) - 1, -1, -1):
        if fused[node]:
            out[node] = min(max(1.0, counted.of(node) / max(1, elements[node])), MOST_COPIES)
        counted.pass_on(node, fused)
    return out


_AT_VALUES: Final = {
    "gather": 0,
    "dynamic-slice": 0,
    "dynamic-update-slice": 1,
    "scatter": 2,
    "sort": 0,
}
"""Operations that read an operand at places that depend on values -> which operand."""


def place_read(
    graph: Graph, node: int, slot: int, places: Mapping[tuple[int, int], float]
) -> tuple[int, int]:
    """What stands for the places at which a node reads an operand: reads at equal places are one evaluation.

    Args:
        graph: of the node.
        node: the reader; no elementwise operation.
        slot: number of the operand.
        places: at which the reader itself is evaluated.
    """
    if len(places) > 1 or _AT_VALUES.get(graph.ops[node].name) == slot:
        return node, slot
    (here,) = places or ((node, -1),)
    shape = tuple(graph.dim_lists[node])
    return hash((here, graph.source.attributes(node), shape)), slot
